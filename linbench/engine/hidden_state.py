"""Whether a module from elsewhere carries from call to call what neither a stack nor a captured step nor a
checkpoint would keep."""

import io
import pickle
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from linbench.engine.batches import Streams, replica
from linbench.experiments import generators
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic


def carried(cell: Cell) -> str | None:
    """The sentence about the first attribute that is such, and what follows from it; None: there is none.

    A model of the cell's own is called twice alike. What is another the second time goes on from the first: a
    buffer that was assigned anew, not written in place, or an attribute of another value. Raises whatever the
    module raises.
    """
    if not any(layer.entry.cls.opaque for layer in cell.model.layers):
        return None
    model = cell.model.build(cell.task, seed=cell.seed).to(cell.device)
    task, examples = cell.trained_on[0]
    batch = replica(
        Streams(task, [cell]).trained_on(
            torch.arange(cell.protocol.batch_size, device=cell.device), examples
        ),
        0,
    )

    def called() -> tuple[dict[str, Tensor], dict[str, Any]]:
        torch.manual_seed(0)
        generators.seed_all(0)
        with arithmetic(cell.protocol.precision, cell.device):
            model(batch.inputs, batch.positions, batch.targets)
        return dict(model.named_buffers()), _attributes(model)

    (buffers, attributes), (new_buffers, new_attributes) = called(), called()
    assigned = [name for name, x in new_buffers.items() if x is not buffers.get(name)]
    changed = [name for name, x in new_attributes.items() if x != attributes.get(name)]
    if not assigned + changed:
        return None
    path, _, name = (assigned + changed)[0].rpartition(".")
    module = type(model.get_submodule(path)).__name__
    return (
        f"{module} carries {name} from call to call, not in a buffer that it writes in place, so it trains"
        " alone, as called, and without checkpoints"
    )


def _attributes(model: nn.Module) -> dict[str, Any]:
    """Beside parameters, buffers and modules, by name: what compares equal if they hold the same."""
    places = [(name, vars(module)) for name, module in model.named_modules()]
    return {
        f"{name}.{key}": _held(x)
        for name, own in places
        for key, x in own.items()
        if key not in {"_parameters", "_buffers", "_modules"}
    }


def _held(value: Any) -> bytes | int:
    """A value as it is now; of what cannot be taken down, which one it is."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception:  # whatever a user's object does
        return id(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Tensors by their values, whatever computed them; modules are looked at by themselves."""

    def reducer_override(self, value: Any) -> Any:
        """As pickle has it."""
        if isinstance(value, Tensor):
            return bytes, (save({"": value.detach().cpu().contiguous()}),)
        return (str, ()) if isinstance(value, nn.Module) else NotImplemented

"""Finds hidden state of a user's module.

Such state is carried from call to call, and neither a stack nor a captured step nor a checkpoint would keep
it.
"""

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


def hidden_state_reason(cell: Cell) -> str | None:
    """Return a sentence about the first attribute with hidden state and its consequences, or None.

    The model is built and called twice with equal inputs and random numbers. Hidden state is what differs
    after the second call: a buffer that was assigned anew instead of written in place, or an attribute with
    another value. Raises whatever the module raises.
    """
    if not any(layer.entry.cls.is_plain_module for layer in cell.model.layers):
        return None
    model = cell.model.build(cell.task, seed=cell.seed).to(cell.device)
    task, examples = cell.trained_on[0]
    places = torch.arange(cell.protocol.batch_size, device=cell.device)
    batch = replica(Streams(task, [cell]).trained_on(places, examples), 0)

    def call() -> tuple[dict[str, Tensor], dict[str, Any]]:
        torch.manual_seed(0)
        generators.seed_all(0)
        with arithmetic(cell.protocol.precision, cell.device):
            model(batch.inputs, batch.positions, batch.targets)
        return dict(model.named_buffers()), _attributes(model)

    buffers, attributes = call()
    new_buffers, new_attributes = call()
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
    """Return the attributes of all modules by name, without parameters, buffers and modules.

    Values are in a form that compares equal if they hold the same.
    """
    places = [(name, vars(module)) for name, module in model.named_modules()]
    return {
        f"{name}.{key}": _snapshot(x)
        for name, attributes in places
        for key, x in attributes.items()
        if key not in {"_parameters", "_buffers", "_modules"}
    }


def _snapshot(value: Any) -> bytes | int:
    """Return a value pickled; the identity of an object that cannot be."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception:  # whatever a user's object does
        return id(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """A pickler that takes tensors by their values and leaves modules out, which are looked at one by one."""

    def reducer_override(self, value: Any) -> Any:
        """Return how to pickle a tensor or module; leave other values to pickle."""
        if isinstance(value, Tensor):
            return bytes, (save({"": value.detach().cpu().contiguous()}),)
        return (str, ()) if isinstance(value, nn.Module) else NotImplemented

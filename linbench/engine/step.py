"""One training step, captured on a GPU, and the state of a training between steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linbench.common.hashing import stable_key
from linbench.engine.batches import Feed, Streams
from linbench.engine.cuda_graph import Captured
from linbench.engine.optimizer import AdamW, Rates
from linbench.engine.schedule import shares
from linbench.engine.stack import Stack
from linbench.experiments import generators
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic
from linbench.kernels.precompile import compile_ahead
from linbench.models.base import Rule
from linbench.tasks.base import Batch

Curve = list[dict[str, float]]


@dataclass
class Run:
    """What has become of one cell. Its curve has a point for every evaluation: step, tokens, loss (training,
    mean since the last point), accuracy and nll (validation)."""

    cell: Cell
    curve: Curve = field(default_factory=list)
    diverged: str | None = None
    stopped: bool = False
    """Early, as the protocol has it."""
    loss: float = 0.0
    losses: int = 0
    """Since the last point: their sum, and how many there were."""

    @property
    def over(self) -> bool:
        """Whether there is nothing more to train."""
        return self.stopped or self.diverged is not None


@dataclass
class Training:
    """A group in the middle of its training: all that the next step depends on, beside the cells. A run for
    each replica of the stack."""

    stack: Stack
    optimiser: AdamW
    runs: list[Run]
    losses: Tensor
    """[R]: summed since they were last read."""
    step: int = 0
    trained: int = 0
    """Tokens so far, those of all replicas."""
    seconds: float = 0.0
    note: str | None = None
    """Why so few train together, or why steps are not captured, if they could not be."""
    carried: str | None = None
    """What goes from step to step in the module and is not here, if anything does: then no step is
    captured."""

    @classmethod
    def begun(cls, stack: Stack, cells: Sequence[Cell], rules: dict[str, Rule]) -> "Training":
        """Before the first step."""
        protocol, steps = cells[0].protocol, cells[0].steps
        key = stable_key("training", *(cell.seed for cell in cells))
        torch.manual_seed(key)  # for modules that draw, such as a user's dropout
        generators.seed_all(key)
        rates = Rates(
            [cell.protocol.lr for cell in cells],
            [cell.protocol.weight_decay for cell in cells],
            shares(steps, protocol, epoch=_epoch(cells[0])),
        )
        rules = (
            rules
            if protocol.decay == "matrices"
            else {name: rule._replace(decay=True) for name, rule in rules.items()}
        )
        optimiser = AdamW(stack, rules, rates, beta1=protocol.beta1, beta2=protocol.beta2, clip=protocol.clip)
        return cls(stack, optimiser, [Run(cell) for cell in cells], _zeros(cells))

    @property
    def cells(self) -> list[Cell]:
        """Of the replicas, in their order."""
        return [run.cell for run in self.runs]

    def keep(self, replicas: Sequence[int]) -> None:
        """Go on with these alone."""
        self.stack, self.runs = self.stack.part(replicas), [self.runs[r] for r in replicas]
        self.optimiser, self.losses = self.optimiser.part(self.stack, replicas), _zeros(self.cells)


class Step:
    """Batch, forward, loss, backward, clipping, AdamW, for batches of one shape: on a GPU captured and
    replayed. Nothing in it waits for the device."""

    def __init__(self, training: Training, segment: int, step: int) -> None:
        """That training's steps on a segment, from `step`, counted from 0, on."""
        self.training = training
        cell = training.cells[0]
        task, examples = cell.trained_on[segment]
        order = cell.curriculum
        first, last = (order.before(segment, end) for end in (step, cell.steps))
        epoch = order.batches[segment] if cell.segments else None
        # tasks alike draw alike from one number
        lowest = sum(earlier.examples or 0 for earlier in cell.segments[:segment])
        self.feed = Feed(
            Streams(task, training.cells),
            examples=examples,
            first=first,
            last=last,
            epoch=epoch,
            lowest=lowest,
        )
        self.precision, self.device = cell.protocol.precision, cell.device
        self.run = Captured(self._run, cell.device, note=training.carried)

    def __call__(self) -> None:
        """Once."""
        self.feed.ready()
        if not self.run.calls and not any(
            layer.entry.cls.opaque for layer in self.training.cells[0].model.layers
        ):
            self._compile()
        self.run()
        self.training.note = self.training.note or self.run.note or self.feed.fill.note

    def _compile(self) -> None:
        """Kernels, side by side. What a user's module would do with numbers that mean nothing is not
        tried."""
        place, device = self.feed.place, self.feed.place.device
        before = place.clone()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            compile_ahead(lambda: self.differentiated(self.feed.batch()), device)
        place.copy_(before)

    def differentiated(self, batch: Batch) -> Tensor:
        """Loss [R] of a batch; its gradients are left in the stack."""
        with arithmetic(self.precision, self.device):
            loss: Tensor = self.training.stack(batch.inputs, batch.positions, batch.targets)
        self.training.stack.differentiate(loss)
        return loss

    def _run(self) -> None:
        loss = self.differentiated(self.feed.batch())
        self.training.optimiser.step()
        self.training.losses += loss.detach()


def _epoch(cell: Cell) -> float | None:
    """Steps."""
    if cell.segments:
        return cell.curriculum.epoch
    return None if cell.protocol.examples is None else cell.protocol.examples / cell.protocol.batch_size


def _zeros(cells: Sequence[Cell]) -> Tensor:
    """[R]."""
    return torch.zeros(len(cells), dtype=torch.float64, device=cells[0].device)

"""One training step, captured on a GPU, and the state of a training between steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linbench.common.hashing import stable_key
from linbench.engine.batches import BatchFeed, Streams
from linbench.engine.cuda_graph import WARMUP, CudaGraph
from linbench.engine.meter import Meter
from linbench.engine.optimizer import AdamW, Rates
from linbench.engine.schedule import learning_rate_factors
from linbench.engine.stack import Stack
from linbench.experiments import generators
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic
from linbench.kernels.precompile import compile_ahead
from linbench.models.base import Rule
from linbench.results.schema.cells import Point
from linbench.tasks.base import Batch

Curve = list[Point]


@dataclass
class Run:
    """The training of one cell so far.

    Its curve has a point for every evaluation: step, tokens, loss (training, mean since the last point),
    accuracy and nll (validation).
    """

    cell: Cell
    curve: Curve = field(default_factory=list)
    diverged: str | None = None
    """The reason, if it diverged."""
    stopped: bool = False
    """True if it reached the accuracy at which the protocol stops early."""
    loss: float = 0.0
    """Sum of the training losses since the last point."""
    losses: int = 0
    """Number of training losses since the last point."""

    @property
    def done(self) -> bool:
        """True if there is nothing more to train."""
        return self.stopped or self.diverged is not None


@dataclass
class Training:
    """The state of a group's training between two steps: with the cells, all that later steps depend on."""

    stack: Stack
    optimiser: AdamW
    runs: list[Run]
    """One for each replica of the stack."""
    losses: Tensor
    """[R]: sums of the losses since they were last read from the device."""
    step: int = 0
    trained: int = 0
    """Tokens trained on so far, summed over replicas."""
    seconds: float = 0.0
    note: str | None = None
    """The reason why no more cells train together, or why steps are not captured, if there is one."""
    hidden_state: str | None = None
    """A sentence about state of a module that this class does not hold, if there is any.

    Then steps are not captured, and no checkpoints are written.
    """
    finds_kernels: bool = False
    """True if the kernels of an earlier step were found on disk, so that those of later ones probably are."""
    meter: Meter = field(default_factory=Meter)
    """Counts what the training takes. It belongs to the process: checkpoints do not hold it."""

    @classmethod
    def start(cls, stack: Stack, cells: Sequence[Cell], rules: dict[str, Rule]) -> "Training":
        """Return the training of `cells` before its first step; seed the generators that modules draw from.

        Args:
            stack: one replica for each cell.
            rules: the optimizer's rule for each parameter, by its name.
        """
        protocol = cells[0].protocol
        key = stable_key("training", *(cell.seed for cell in cells))
        torch.manual_seed(key)  # for modules that draw, such as a user's dropout
        generators.seed_all(key)
        rates = Rates(
            [cell.protocol.lr for cell in cells],
            [cell.protocol.weight_decay for cell in cells],
            learning_rate_factors(
                cells[0].steps, protocol, epoch=_steps_per_epoch(cells[0]), base=cells[0].base_steps
            ),
        )
        if protocol.decay != "matrices":
            rules = {name: rule._replace(decay=True) for name, rule in rules.items()}
        optimiser = AdamW(stack, rules, rates, beta1=protocol.beta1, beta2=protocol.beta2, clip=protocol.clip)
        return cls(stack, optimiser, [Run(cell) for cell in cells], _zeros(cells))

    @property
    def cells(self) -> list[Cell]:
        """The cells in the order of the replicas."""
        return [run.cell for run in self.runs]

    def select_replicas(self, replicas: Sequence[int]) -> None:
        """Go on with these replicas alone."""
        self.stack, self.runs = self.stack.part(replicas), [self.runs[r] for r in replicas]
        self.optimiser, self.losses = self.optimiser.part(self.stack, replicas), _zeros(self.cells)


class Step:
    """A training step for batches of one shape: batch, forward, loss, backward, clipping, AdamW.

    On a GPU it is captured and replayed. Nothing in it waits for the device.
    """

    def __init__(self, training: Training, segment: int, step: int) -> None:
        """Make the step of a training on a segment of its curriculum.

        Args:
            segment: number of the segment.
            step: number of the first step that is taken, from 0.
        """
        self.training = training
        cell = training.cells[0]
        task, examples = cell.trained_on[segment]
        order = cell.curriculum
        first, last = (order.before(segment, end) for end in (step, cell.steps))
        epoch = order.batches[segment] if cell.segments else None
        # segments of equal tasks draw from one stream, so each begins after those before it
        lowest = sum(earlier.examples or 0 for earlier in cell.segments[:segment])
        self.feed = BatchFeed(
            Streams(task, training.cells),
            examples=examples,
            first=first,
            last=last,
            epoch=epoch,
            lowest=lowest,
            stride=sum(each.examples or 0 for each in cell.trained_on) if cell.protocol.fresh else 0,
        )
        self.precision, self.device = cell.protocol.precision, cell.device
        self.run = CudaGraph(self._run, cell.device, note=training.hidden_state)

    @property
    def is_settling(self) -> bool:
        """True if the next call compiles kernels or captures the step."""
        return self.device != "cpu" and self.run.calls <= WARMUP

    def __call__(self) -> None:
        """Train on one more batch."""
        self.feed.refill()
        if not self.run.calls and not self.training.finds_kernels and not self._has_module():
            self.training.finds_kernels = not self._compile()
        self.run()
        self.training.note = self.training.note or self.run.note or self.feed.fill.note

    def _has_module(self) -> bool:
        """Return whether a layer is a user's module, whose kernels are not known before it runs."""
        return any(layer.entry.cls.is_plain_module for layer in self.training.cells[0].model.layers)

    def _compile(self) -> bool:
        """Compile kernels side by side, in a rehearsal on numbers that mean nothing.

        Returns: whether there was something to compile.
        """
        place, device = self.feed.place, self.feed.place.device
        before = place.clone()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            compiled = compile_ahead(lambda: self.forward_backward(self.feed.batch()), device)
        place.copy_(before)
        return compiled

    def forward_backward(self, batch: Batch) -> Tensor:
        """Return the loss [R] of a batch, and leave its gradients in the stack."""
        with arithmetic(self.precision, self.device):
            loss: Tensor = self.training.stack(batch.inputs, batch.positions, batch.targets)
        self.training.stack.differentiate(loss)
        return loss

    def _run(self) -> None:
        loss = self.forward_backward(self.feed.batch())
        self.training.optimiser.step()
        self.training.losses += loss.detach()


def _steps_per_epoch(cell: Cell) -> float | None:
    if cell.segments:
        return cell.curriculum.epoch
    return None if cell.protocol.examples is None else cell.protocol.examples / cell.protocol.batch_size


def _zeros(cells: Sequence[Cell]) -> Tensor:
    """Return zeros [R]."""
    return torch.zeros(len(cells), dtype=torch.float64, device=cells[0].device)

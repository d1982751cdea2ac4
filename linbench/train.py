"""Training a group of cells by the protocol as one program: loss at the labelled positions, AdamW."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linbench import generators
from linbench.batches import Feed, Streams
from linbench.capture import Captured
from linbench.cell import Cell
from linbench.common.keys import stable_key
from linbench.evaluate import Exam
from linbench.kernels.ahead import compile_ahead
from linbench.models.base import Rule
from linbench.optimiser import AdamW, Rates
from linbench.precision import arithmetic
from linbench.protocol import Protocol
from linbench.stack import Stack
from linbench.tasks.base import Batch

READS = 200
"""How often in a run the loss is read from the device, at most: each reading waits for it."""

APART = 20
"""Steps between two readings, at least, but for evaluations."""

Curve = list[dict[str, float]]


@dataclass(frozen=True)
class Report:
    """How a group is getting on, as means over its replicas: `loss` since the last report, `accuracy` the last on the validation split."""

    step: int
    steps: int
    loss: float
    accuracy: float | None
    tokens_per_second: float


@dataclass
class Run:
    """What has become of one cell. Its curve has a point for every evaluation: step, tokens, loss (training, mean since the last point),
    accuracy and nll (validation)."""

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
    """A group in the middle of its training: all that the next step depends on, beside the cells. A run for each replica of the stack."""

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
    """What goes from step to step in the module and is not here, if anything does: then no step is captured."""

    @classmethod
    def begun(cls, stack: Stack, cells: Sequence[Cell], rules: dict[str, Rule]) -> "Training":
        """Before the first step."""
        protocol, steps = cells[0].protocol, cells[0].steps
        key = stable_key("training", *(cell.seed for cell in cells))
        torch.manual_seed(key)  # for modules that draw, such as a user's dropout
        generators.seed_all(key)
        rates = Rates([cell.protocol.lr for cell in cells], [cell.protocol.weight_decay for cell in cells], shares(steps, protocol, epoch=_epoch(cells[0])))
        rules = rules if protocol.decay == "matrices" else {name: rule._replace(decay=True) for name, rule in rules.items()}
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
    """Batch, forward, loss, backward, clipping, AdamW, for batches of one shape: on a GPU captured and replayed. Nothing in it waits for the device."""

    def __init__(self, training: Training, segment: int, step: int) -> None:
        """That training's steps on a segment, from `step`, counted from 0, on."""
        self.training = training
        cell = training.cells[0]
        task, examples = cell.trained_on[segment]
        order = cell.curriculum
        first, last = (order.before(segment, end) for end in (step, cell.steps))
        epoch = order.batches[segment] if cell.segments else None
        lowest = sum(earlier.examples or 0 for earlier in cell.segments[:segment])  # tasks alike draw alike from one number
        self.feed = Feed(Streams(task, training.cells), examples=examples, first=first, last=last, epoch=epoch, lowest=lowest)
        self.precision, self.device = cell.protocol.precision, cell.device
        self.run = Captured(self._run, cell.device, note=training.carried)

    def __call__(self) -> None:
        """Once."""
        self.feed.ready()
        if not self.run.calls and not any(layer.entry.cls.opaque for layer in self.training.cells[0].model.layers):
            self._compile()
        self.run()
        self.training.note = self.training.note or self.run.note or self.feed.fill.note

    def _compile(self) -> None:
        """Kernels, side by side. What a user's module would do with numbers that mean nothing is not tried."""
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


Finished = tuple[list[Run], Stack | None]
"""Runs that are over, and their models; none where they diverged."""


def train(training: Training, on_report: Callable[[Report], None], on_rest: Callable[[Training], None] = lambda training: None) -> Iterator[Finished]:
    """Train every replica as its cell says, and give each away when it is over.

    Cells may differ in seed, learning rate and weight decay. When half of a stack is over, the rest goes on without it. `on_rest` is called
    whenever nothing but `training` decides how it goes on.
    """
    cell = training.runs[0].cell
    protocol, steps = cell.protocol, cell.steps
    evaluate_at = {round(steps * (i + 1) / protocol.evaluations) for i in range(protocol.evaluations)}
    apart = max(APART, steps // READS)
    accuracy, began = None, time.perf_counter()
    order, made = cell.curriculum, dict[int, Step]()
    judge, since = _exam(training), 0
    for step in range(training.step + 1, steps + 1):
        segment = order.segment(step - 1)
        if segment not in made:
            made[segment] = Step(training, segment, step - 1)
        made[segment]()
        since += 1
        if step - training.step < apart and step not in evaluate_at:
            continue

        runs = training.runs
        means = (training.losses / since).tolist()
        training.trained += (order.tokens(step) - order.tokens(training.step)) * len(runs)
        training.step = step
        training.seconds += time.perf_counter() - began
        for run, mean in zip(runs, means, strict=True):
            run.loss, run.losses = run.loss + mean * since, run.losses + since
            if not math.isfinite(mean):
                run.diverged = run.diverged or f"the loss was {mean} by step {step} of {steps}"
        training.losses.zero_()
        since = 0
        if step in evaluate_at:
            accuracy = _point(training, judge)
            for r, run in enumerate(runs):
                if not run.over and protocol.stop_at is not None and run.curve[-1]["accuracy"] >= protocol.stop_at:
                    run.stopped = True
                    yield [run], training.stack.part([r])
        going = [r for r, run in enumerate(runs) if not run.over]
        on_report(Report(step, steps, _mean(means, going), accuracy, training.trained / training.seconds))
        if len(going) <= len(runs) / 2 or step == steps:
            if diverged := [run for run in runs if run.diverged is not None]:
                yield diverged, None
            if not going:
                return
            if len(going) < len(runs):
                training.keep(going)
                made.clear()
                judge = _exam(training)
        if step < steps and training.carried is None:
            on_rest(training)
        began = time.perf_counter()
    yield training.runs, training.stack


def shares(steps: int, protocol: Protocol, *, epoch: float | None = None) -> list[float]:
    """The share of the peak learning rate at every step: a linear warm-up, then the schedule; `epoch`: steps of one, for epoch_cosine."""
    return [_share(step, steps, protocol, epoch) for step in range(1, steps + 1)]


def _share(step: int, steps: int, protocol: Protocol, epoch: float | None) -> float:
    warmup = round(protocol.warmup * steps)
    if step <= warmup:
        return step / warmup
    if protocol.schedule == "constant":
        return 1.0
    done, all_ = step - warmup, max(1, steps - warmup)
    if protocol.schedule == "epoch_cosine":
        assert epoch is not None
        done, all_ = int((step - 1) / epoch), max(1, round(steps / epoch))
    return 0.5 * (1 + math.cos(math.pi * done / all_))


def _epoch(cell: Cell) -> float | None:
    """Steps."""
    if cell.segments:
        return cell.curriculum.epoch
    return None if cell.protocol.examples is None else cell.protocol.examples / cell.protocol.batch_size


def _zeros(cells: Sequence[Cell]) -> Tensor:
    """[R]."""
    return torch.zeros(len(cells), dtype=torch.float64, device=cells[0].device)


def _exam(training: Training) -> Exam:
    return Exam(training.cells, "validation", training.cells[0].protocol.validation_examples, slices=False)


def _point(training: Training, judge: Exam) -> float | None:
    """A point on every curve; the mean accuracy of those that have not diverged."""
    runs, step = training.runs, training.step
    tokens = runs[0].cell.curriculum.tokens(step)
    for run, judgement in zip(runs, judge(training.stack), strict=True):
        metrics, loss_name = judgement.metrics, run.cell.task.loss
        if run.diverged is None and not math.isfinite(metrics[loss_name]):
            run.diverged = f"the validation loss was {metrics[loss_name]} at step {step} of {run.cell.steps}"
        if run.diverged is None:
            loss = run.loss / run.losses
            run.curve.append({"step": step, "tokens": tokens, "loss": loss, "accuracy": metrics["accuracy"], loss_name: metrics[loss_name]})
        run.loss, run.losses = 0.0, 0
    accuracies = [run.curve[-1]["accuracy"] for run in runs if run.diverged is None]
    return sum(accuracies) / len(accuracies) if accuracies else None


def _mean(values: Sequence[float], these: Sequence[int]) -> float:
    return sum(values[i] for i in these) / len(these) if these else math.nan

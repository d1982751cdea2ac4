"""Training a group of cells by the protocol as one program: loss at the labelled positions, AdamW."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from linbench.engine.evaluate import Exam
from linbench.engine.progress import Report
from linbench.engine.stack import Stack
from linbench.engine.step import Run, Step, Training

READS = 200
"""How often in a run the loss is read from the device, at most: each reading waits for it."""

APART = 20
"""Steps between two readings, at least, but for evaluations."""


Finished = tuple[list[Run], Stack | None]
"""Runs that are over, and their models; none where they diverged."""


def train(
    training: Training,
    on_report: Callable[[Report], None],
    on_rest: Callable[[Training], None] = lambda training: None,
) -> Iterator[Finished]:
    """Train every replica as its cell says, and give each away when it is over.

    Cells may differ in seed, learning rate and weight decay. When half of a stack is over, the rest goes on
    without it. `on_rest` is called whenever nothing but `training` decides how it goes on.
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
                if (
                    not run.over
                    and protocol.stop_at is not None
                    and run.curve[-1]["accuracy"] >= protocol.stop_at
                ):
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
            run.curve.append(
                {
                    "step": step,
                    "tokens": tokens,
                    "loss": loss,
                    "accuracy": metrics["accuracy"],
                    loss_name: metrics[loss_name],
                }
            )
        run.loss, run.losses = 0.0, 0
    accuracies = [run.curve[-1]["accuracy"] for run in runs if run.diverged is None]
    return sum(accuracies) / len(accuracies) if accuracies else None


def _mean(values: Sequence[float], these: Sequence[int]) -> float:
    return sum(values[i] for i in these) / len(these) if these else math.nan

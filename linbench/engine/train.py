"""Trains a group of cells by the protocol as one program: loss at the labelled positions, AdamW."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from linbench.engine.evaluate import Evaluation
from linbench.engine.meter import EVALUATION, FIRST_STEPS, TRAINING
from linbench.engine.progress import Report
from linbench.engine.schedule import evaluation_steps
from linbench.engine.stack import Stack
from linbench.engine.step import Run, Step, Training
from linbench.results.schema.cells import Point

MOST_READS = 200
"""Times that the loss is read from the device in a run, at most: each reading waits for the device."""

LEAST_STEPS_BETWEEN_READS = 20
"""Steps between two readings, at least, except for evaluations."""

FinishedRuns = tuple[list[Run], Stack | None]
"""Runs that are over, and their models; None for runs that diverged."""


def train(
    training: Training,
    on_report: Callable[[Report], None],
    on_checkpoint: Callable[[Training], None] = lambda training: None,
) -> Iterator[FinishedRuns]:
    """Train every replica as its cell says, and yield each when it is over.

    Cells may differ in seed, learning rate and weight decay. When half of a stack is over, the others go on
    without it.

    Args:
        training: the group, before its first step or restored from a checkpoint.
        on_report: called when losses were read from the device.
        on_checkpoint: called whenever `training` alone decides how the training goes on.
    """
    cell = training.runs[0].cell
    steps, order = cell.steps, cell.curriculum
    evaluate_at = evaluation_steps(cell)
    steps_between_reads = max(LEAST_STEPS_BETWEEN_READS, steps // MOST_READS)
    step_of_segment: dict[int, Step] = {}
    evaluation, accuracy, meter = _validation(training), None, training.meter
    meter.turn_to(TRAINING)
    began = time.perf_counter()
    for step in range(training.step + 1, steps + 1):
        segment = order.segment(step - 1)
        if segment not in step_of_segment:
            step_of_segment[segment] = Step(training, segment, step - 1)
        take_step = step_of_segment[segment]
        meter.turn_to(FIRST_STEPS if take_step.is_settling else TRAINING)
        take_step()
        if step - training.step < steps_between_reads and step not in evaluate_at:
            continue

        runs = training.runs
        means = _read_losses(training, step)
        training.seconds += time.perf_counter() - began
        meter.turn_to(None)
        if step in evaluate_at:
            accuracy = _add_point(training, evaluation)
            for r in _stop_early(training):
                yield [runs[r]], training.stack.part([r])
        unfinished = [r for r, run in enumerate(runs) if not run.done]
        loss = _mean([means[r] for r in unfinished])
        on_report(Report(step, steps, loss, accuracy, training.trained / training.seconds))
        if len(unfinished) <= len(runs) / 2 or step == steps:
            if diverged := [run for run in runs if run.diverged is not None]:
                yield diverged, None
            if not unfinished:
                return
            if len(unfinished) < len(runs):
                training.select_replicas(unfinished)
                step_of_segment.clear()
                evaluation = _validation(training)
        if step < steps and training.hidden_state is None:
            on_checkpoint(training)
        meter.turn_to(TRAINING)
        began = time.perf_counter()
    yield training.runs, training.stack


def _read_losses(training: Training, step: int) -> list[float]:
    """Read the losses since the last reading; return their mean for each run, and mark what diverged."""
    cell, runs = training.runs[0].cell, training.runs
    since = step - training.step
    means: list[float] = (training.losses / since).tolist()
    training.losses.zero_()
    tokens = cell.curriculum.tokens
    trained = (tokens(step) - tokens(training.step)) * len(runs)
    training.trained += trained
    training.meter.tokens += trained
    training.step = step
    for run, mean in zip(runs, means, strict=True):
        run.loss, run.losses = run.loss + mean * since, run.losses + since
        if not math.isfinite(mean):
            run.diverged = run.diverged or f"the loss was {mean} by step {step} of {cell.steps}"
    return means


def _validation(training: Training) -> Evaluation:
    """Draw the examples of validation."""
    cells = training.cells
    training.meter.turn_to(EVALUATION)
    examples, note = cells[0].protocol.validation_examples, training.hidden_state
    evaluation = Evaluation(cells, "validation", examples, slices=False, note=note)
    training.meter.turn_to(None)
    return evaluation


def _add_point(training: Training, evaluation: Evaluation) -> float | None:
    """Add a point to every curve; return the mean accuracy of the runs that have not diverged."""
    training.meter.turn_to(EVALUATION)
    results = evaluation(training.stack)
    training.meter.turn_to(None)
    for run, result in zip(training.runs, results, strict=True):
        metrics, loss_name = result.metrics, run.cell.task.loss
        if run.diverged is None and not math.isfinite(metrics[loss_name]):
            where = f"at step {training.step} of {run.cell.steps}"
            run.diverged = f"the validation loss was {metrics[loss_name]} {where}"
        if run.diverged is None:
            point: Point = {
                "step": training.step,
                "tokens": run.cell.curriculum.tokens(training.step),
                "loss": run.loss / run.losses,
                "accuracy": metrics["accuracy"],
            }
            point[loss_name] = metrics[loss_name]
            run.curve.append(point)
        run.loss, run.losses = 0.0, 0
    accuracies = [run.curve[-1]["accuracy"] for run in training.runs if run.diverged is None]
    return _mean(accuracies) if accuracies else None


def _stop_early(training: Training) -> Iterator[int]:
    """Stop runs that have reached the accuracy at which the protocol stops, and yield their numbers."""
    for r, run in enumerate(training.runs):
        stop_at = run.cell.protocol.stop_at
        if not run.done and stop_at is not None and run.curve[-1]["accuracy"] >= stop_at:
            run.stopped = True
            yield r


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan

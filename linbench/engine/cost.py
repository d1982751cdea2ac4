"""Estimates of what cells will cost, from what finished cells cost on the same kind of device."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from linbench.common.hashing import digest
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.results.schema.cells import CellResult


class CostModel(NamedTuple):
    """A model of how long a training step takes: `times` (`least` + `operation` x FLOPs) seconds.

    A small step is bound by its number of kernels and a large one by its arithmetic, so `least` and
    `operation` are shared by all models. `times` is a factor of each model, by its label; the one under ""
    is for models that were not measured. `cells` is the number of finished cells that it was fitted to.
    """

    least: float
    operation: float
    times: Mapping[str, float]
    cells: int


class _MeasuredStep(NamedTuple):
    """A finished cell's training: FLOPs and seconds of one step."""

    label: str
    flops: float
    seconds: float


def flops(cell: Cell) -> float | None:
    """Return the floating-point operations of training a cell, or None if a layer declares none.

    Backward counts twice as much as forward. A token counts as in the longest test, as results tell it.
    """
    per_token = _flops_per_token(cell)
    return None if per_token is None else 3 * per_token * cell.curriculum.tokens(cell.steps)


_KNOWN: dict[str, float | None] = {}
"""FLOPs per token that were counted before, by a digest of all that they depend on.

Many cells differ in training settings alone.
"""


def _flops_per_token(cell: Cell) -> float | None:
    test = cell.longest_test
    lengths = [test.seq_len, test.answers]
    key = digest({"model": cell.model.identity(), "io": cell.task.io._asdict(), "test": lengths})
    if key not in _KNOWN:
        _KNOWN[key] = cell.model.sketch(cell.task).flops_per_token(test.seq_len, test.answers)
    return _KNOWN[key]


def least_bytes(cell: Cell) -> int:
    """Return a lower bound on the bytes of memory that training a cell takes.

    Counted are weights, their gradient and two moments in float32, and the input of every layer in bf16,
    which backward reads. A user's module is not built for this; its weights are left out.
    """
    longest = max(segment.task.seq_len for segment in cell.trained_on)
    tokens = cell.protocol.batch_size * longest
    layer_inputs = 2 * tokens * cell.model.backbone.d_model * (1 + cell.model.depth)
    if any(layer.entry.cls.is_plain_module for layer in cell.model.layers):
        return layer_inputs
    parameters = sum(parameter.numel() for parameter in cell.model.sketch(cell.task).parameters())
    return 16 * parameters + layer_inputs


def fit_cost_model(results: Iterable[CellResult], device: str) -> CostModel | None:
    """Return a cost model fitted to finished cells of this kind of device; None if there are none."""
    steps = _measured_steps(results, device_class(device))
    if not steps:
        return None
    least, operation = _fit_line([(step.flops, step.seconds) for step in steps])
    times: dict[str, list[float]] = {}
    for step in steps:
        for name in (step.label, ""):
            times.setdefault(name, []).append(step.seconds / (least + operation * step.flops))
    medians = {name: median(values) for name, values in times.items()}
    return CostModel(least, operation, medians, len(steps))


def _measured_steps(results: Iterable[CellResult], kind: str) -> list[_MeasuredStep]:
    steps = []
    for result in results:
        per_token = result["model"].get("flops_per_token")
        if result["status"] != "ok" or result["cell"]["device"] != kind or not per_token:
            continue
        for last in result["curve"][-1:]:
            work = 3 * per_token * last["tokens"] / last["step"]
            took = result["seconds"] / result["stack"]["size"] / last["step"]
            steps.append(_MeasuredStep(result["label"], work, took))
    return steps


def estimate_seconds(cells: Sequence[Cell], known: CostModel | None) -> float | None:
    """Return the seconds that cells of one structure will take on one device.

    None if no finished cell tells, or a layer declares no operations.
    """
    work = flops(cells[0])
    if known is None or work is None:
        return None
    times = known.times.get(cells[0].model.label, known.times[""])
    return len(cells) * times * (known.least * cells[0].steps + known.operation * work)


def total_seconds(estimates: Sequence[float | None]) -> float | None:
    """Return the sum of estimates; None if one of them is not known."""
    known = [seconds for seconds in estimates if seconds is not None]
    return sum(known) if len(known) == len(estimates) else None


def _fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a and b, neither below 0, of the line y = a + b x through points (x, y).

    The fit is by least squares of relative errors. If all x are equal the line goes through 0.
    """
    ones, xs, squares = (sum(x**power / y**2 for x, y in points) for power in range(3))
    y1, yx = (sum(x**power / y for x, y in points) for power in range(2))
    determinant = ones * squares - xs**2
    if determinant <= 1e-9 * ones * squares:
        return 0.0, yx / squares
    a, b = (y1 * squares - yx * xs) / determinant, (yx * ones - y1 * xs) / determinant
    if a < 0:
        return 0.0, yx / squares
    if b < 0:
        return y1 / ones, 0.0
    return a, b

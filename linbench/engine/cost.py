"""What cells will cost, judged by what finished ones did cost on the same kind of device."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from linbench.common.hashing import digest
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.results.record import Result


class Pace(NamedTuple):
    """How long steps take: `times` their (least + operation x floating-point operations) seconds. The first
    two are of all models alike, since a small step is bound by its number of kernels and a large one by their
    work, and `times` is a model's own, by its label, or of all under ""."""

    least: float
    operation: float
    times: Mapping[str, float]


def flops(cell: Cell) -> float | None:
    """Floating-point operations of training a cell, backward as twice forward, a token as in the longest
    test, as results tell it; None where a layer does not declare its own."""
    per_token = _per_token(cell)
    return None if per_token is None else 3 * per_token * cell.curriculum.tokens(cell.steps)


_KNOWN: dict[str, float | None] = {}
"""What a token takes, by all that decides it: cells that differ in what they are trained by ask for the
same."""


def _per_token(cell: Cell) -> float | None:
    test = cell.longest_test
    name = digest(
        {"model": cell.model.identity(), "io": cell.task.io._asdict(), "test": [test.seq_len, test.answers]}
    )
    if name not in _KNOWN:
        _KNOWN[name] = cell.model.sketch(cell.task).flops_per_token(test.seq_len, test.answers)
    return _KNOWN[name]


def least_bytes(cell: Cell) -> int:
    """Return the bytes of memory that training a cell takes at the least: weights, their gradient and two
    moments of it in float32, and what enters every layer, which backward reads. A module from elsewhere is
    not made for it, and its weights are left out."""
    longest = max(segment.task.seq_len for segment in cell.trained_on)
    # in bf16
    entering = (
        2 * cell.protocol.batch_size * longest * cell.model.backbone.d_model * (1 + len(cell.model.layers))
    )
    if any(layer.entry.cls.opaque for layer in cell.model.layers):
        return entering
    return 16 * sum(parameter.numel() for parameter in cell.model.sketch(cell.task).parameters()) + entering


def pace(results: Iterable[Result], device: str) -> Pace | None:
    """Of what was trained whole on this kind of device; None where nothing was."""
    steps = [
        (
            result["label"],
            3 * result["model"]["flops_per_token"] * last["tokens"] / last["step"],
            result["seconds"] / result["stack"]["size"] / last["step"],
        )
        for result in results
        if result["status"] == "ok"
        and result["cell"]["device"] == device_class(device)
        and result["model"]["flops_per_token"]
        for last in result["curve"][-1:]
    ]
    if not steps:
        return None
    least, operation = _line([(work, took) for _, work, took in steps])
    times: dict[str, list[float]] = {}
    for label, work, took in steps:
        for name in (label, ""):
            times.setdefault(name, []).append(took / (least + operation * work))
    return Pace(least, operation, {name: median(values) for name, values in times.items()})


def seconds(cells: Sequence[Cell], known: Pace | None) -> float | None:
    """How long cells of one structure will take at the `pace` known, one device at work; None where nothing
    was finished that could tell, or a layer declares nothing."""
    work = flops(cells[0])
    if known is None or work is None:
        return None
    times = known.times.get(cells[0].model.label, known.times[""])
    return len(cells) * times * (known.least * cells[0].steps + known.operation * work)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The a and b, neither below 0, of y = a + b x with the least squares of relative errors, of points (x,
    y); through 0 where all x are the same."""
    ones, xs, squares = (sum(x**power / y**2 for x, y in points) for power in range(3))
    y1, yx = (sum(x**power / y for x, y in points) for power in range(2))
    determinant = ones * squares - xs**2
    if determinant <= 1e-9 * ones * squares:
        return 0.0, yx / squares
    a, b = (y1 * squares - yx * xs) / determinant, (yx * ones - y1 * xs) / determinant
    return (0.0, yx / squares) if a < 0 else (y1 / ones, 0.0) if b < 0 else (a, b)

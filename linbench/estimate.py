"""What cells will cost, judged by what finished ones did cost on the same kind of device."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from linbench.cell import Cell, device_class
from linbench.store import Result


def flops(cell: Cell) -> float | None:
    """Floating-point operations of training a cell, backward as twice forward, a token as in the longest test, as results tell it; None where a
    layer does not declare its own."""
    test = cell.longest_test
    per_token = cell.model.sketch(cell.task).flops_per_token(test.seq_len, test.answers)
    return None if per_token is None else 3 * per_token * cell.curriculum.tokens(cell.steps)


def rates(results: Iterable[Result], device: str) -> dict[str, float]:
    """By model, the median floating-point operations per second of what was trained whole on this kind of device, and under "" of all."""
    found: dict[str, list[float]] = {}
    for result in results:
        if result["status"] == "ok" and result["cell"]["device"] == device_class(device) and result["model"]["flops_per_token"] and result["curve"]:
            done = 3 * result["model"]["flops_per_token"] * result["curve"][-1]["tokens"] * result["stack"]["size"] / result["seconds"]
            for name in (result["label"], ""):
                found.setdefault(name, []).append(done)
    return {name: median(values) for name, values in found.items()}


def seconds(cells: Sequence[Cell], known: Mapping[str, float]) -> float | None:
    """How long cells of one structure will take at the `rates` known, one device at work; None where nothing was finished that could tell, or a
    layer declares nothing."""
    rate, work = known.get(cells[0].model.label, known.get("")), flops(cells[0])
    return None if rate is None or work is None else len(cells) * work / rate

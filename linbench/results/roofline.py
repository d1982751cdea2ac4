"""Rooflines: the least time that a device allows for a call, and the growth of times with the length."""

import math
from collections.abc import Mapping

from linbench.results.schema.benchmarks import BenchmarkResult, SpeedResult, Timing
from linbench.results.speed_labels import AS_CALLED


def growth(seconds: Mapping[int, float]) -> float | None:
    """Return the exponent e by which seconds grow with a length T, as T^e; None for fewer than two lengths.

    It is the slope of log seconds over log T by least squares. For the time of a sequence it is 1 if a token
    costs the same at every length, and 2 if its cost is proportional to the length.
    """
    if len(seconds) < 2:
        return None
    points = [(math.log(length), math.log(value)) for length, value in seconds.items()]
    x, y = sum(a for a, _ in points) / len(points), sum(b for _, b in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def roofline(result: SpeedResult, side: str, timing: str) -> float | None:
    """Return the larger of a call's `floors` over its measured seconds; None if either is not known."""
    seconds, least = timing_of(result, side, timing), floors(result).values()
    return None if seconds is None or not least else max(least) / seconds["median"]


def floors(result: BenchmarkResult) -> dict[str, float]:
    """Return the least seconds that our side can take, where they are known.

    Returns:
        `flops`: the seconds of its operations at the rate of a matrix product, and `bytes`: those of its
        bytes at the rate of a copy. Both rates were measured in the same run.
    """
    cost, peaks = result["cost"], result["ceilings"]
    seconds: dict[str, float] = {}
    if cost is None or peaks is None:
        return seconds
    if cost["flops"] is not None:
        seconds["flops"] = cost["flops"] / peaks["flops_per_second"]
    if cost["bytes"] is not None:
        seconds["bytes"] = cost["bytes"] / peaks["bytes_per_second"]
    return seconds


def timing_of(result: SpeedResult, side: str, timing: str) -> Timing | None:
    """Return the seconds of a call of one side of a layer; None if it was not timed that way.

    Args:
        timing: `as_called` or `replayed`.
    """
    measured = result["sides"].get(side, {})
    return measured.get("as_called") if timing == AS_CALLED else measured.get("replayed")

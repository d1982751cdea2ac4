"""The least time that a device's arithmetic and memory allow, and how times grow."""

import math
from collections.abc import Mapping

from linbench.results.schema.benchmarks import BenchmarkResult, SpeedResult, Timing
from linbench.results.speed_labels import AS_CALLED


def growth(seconds: Mapping[int, float]) -> float | None:
    """The exponent e by which seconds grow with a length T, as T^e: the slope of the logarithms by least
    squares over all lengths; None for fewer than two.

    Of the time of one sequence it is 1 where a token costs the same however many there are, and 2 where it
    costs in proportion to their number.
    """
    if len(seconds) < 2:
        return None
    points = [(math.log(length), math.log(value)) for length, value in seconds.items()]
    x, y = sum(a for a, _ in points) / len(points), sum(b for _, b in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def roofline(result: SpeedResult, side: str, timing: str) -> float | None:
    """How near a call comes to what the device did at best in the same run: the longer of the times that its
    least operations and bytes take at the rates of a matrix product and of a copy, over its own. None where
    one is not known."""
    seconds, least = timing_of(result, side, timing), floors(result).values()
    return None if seconds is None or not least else max(least) / seconds["median"]


def floors(result: BenchmarkResult) -> dict[str, float]:
    """Return the least seconds that our side can take, where they are known.

    Returns:
        `flops`: the seconds of its operations at the rate of a matrix product, and `bytes`: those of its bytes
        at the rate of a copy. Both rates were measured in the same run.
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

"""The least time that a device's arithmetic and memory allow, and how times grow."""

import math
from collections.abc import Mapping

from linbench.results.record import Result


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


def roofline(result: Result, side: str, timing: str) -> float | None:
    """How near a call comes to what the device did at best in the same run: the longer of the times that its
    least operations and bytes take at the rates of a matrix product and of a copy, over its own. None where
    one is not known."""
    seconds, least = result["sides"].get(side, {}).get(timing), floors(result).values()
    return None if seconds is None or not least else max(least) / float(seconds["median"])


def floors(result: Result) -> dict[str, float]:
    """Seconds that the least operations and bytes of ours take at the rates of a matrix product and of a copy
    in the same run, where these are known."""
    cost, best = result["cost"], result["ceilings"]
    return (
        {
            what: cost[what] / best[f"{what}_per_second"]
            for what in ("flops", "bytes")
            if cost[what] is not None
        }
        if cost and best
        else {}
    )

"""Stored speeds of whole suites: rates, and the shares of where the time of workers went."""

from linbench.results.schema.benchmarks import SweepResult, SweepSpent

REST = "rest"
"""The part of the time of workers that is not timed: starting, waiting for work, reading and writing."""


def tokens_per_second(spent: SweepSpent) -> float:
    """Return the tokens that all cells together trained on in a second, from first command to last result."""
    return spent["tokens"] / spent["seconds"]


def shares(result: SweepResult) -> dict[str, float]:
    """Return the shares of parts in the time of all workers, the `REST` last; they add up to 1.

    Nothing is returned for a suite that could not be measured.
    """
    spent = result.get("spent")
    if not spent:
        return {}
    in_all = spent["seconds"] * max(1, result["bench"]["workers"])  # without workers, one process does all
    parts = {name: seconds / in_all for name, seconds in spent["parts"].items()}
    # a cluster that grew had more workers than it began with
    return parts | {REST: max(0.0, 1.0 - sum(parts.values()))}


def device_words(result: SweepResult) -> str:
    """Return the devices that a suite was run on, such as `NVIDIA H200 x 4`."""
    name = result["environment"]["device"]["name"]
    return name if result["bench"]["device"] == "cpu" else f"{name} x {result['bench']['devices']}"


def notes(result: SweepResult) -> str:
    """Return what went wrong, in words."""
    if result["status"] != "ok":
        return f"{result['status']}: {result['reason']}"
    spent = result.get("spent")
    return f"{spent['failed']} of {spent['cells']} cells failed" if spent and spent["failed"] else ""

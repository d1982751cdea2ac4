"""Scores of stored results, and where they lie between chance and a perfect score."""

from math import inf
from typing import NamedTuple

from linbench.results.schema.cells import CellResult


def accuracy(result: CellResult) -> float | None:
    """Return test accuracy: chance for a diverged run, None if nothing was measured."""
    if result["status"] == "diverged":
        return float(result["chance"])
    return result["metrics"].get("accuracy") if result["status"] == "ok" else None


BITS = "_bits"
"""End of the names of metrics that say how many bits all weights of a model hold."""


def further_metrics(result: CellResult) -> dict[str, float]:
    """Return the metrics beside accuracy; none unless the run ended well.

    Where bits are among them, "bits_per_parameter" is added: the sum of all bits, each number at least 0,
    over the parameters of the model (arXiv:2404.05405, definition 4.3).
    """
    if result["status"] != "ok":
        return {}
    found = {name: value for name, value in result["metrics"].items() if name != "accuracy"}
    bits = [max(0.0, value) for name, value in found.items() if name.endswith(BITS)]
    parameters = result["model"].get("parameters")
    return {**found, "bits_per_parameter": sum(bits) / parameters} if bits and parameters else found


class Levels(NamedTuple):
    """The accuracy of the best blind guess, and the one that can be expected of the exact solver."""

    chance: float
    optimum: float


def validation_levels(result: CellResult) -> Levels:
    """Return the levels of what a run was validated on: of its tests, or of those no longer than training."""
    if "validation" in result:
        return Levels(result["validation"]["chance"], result["validation"]["optimum"])
    return Levels(result["chance"], result.get("optimum", 1.0))


def validation_accuracy(result: CellResult) -> float | None:
    """Return final validation accuracy: chance for a diverged run, None if nothing was measured."""
    if result["status"] == "diverged":
        return float(validation_levels(result).chance)
    return float(result["curve"][-1]["accuracy"]) if result["status"] == "ok" else None


def validation_loss(result: CellResult) -> float:
    """Return the validation loss (nll or mse) at the end of training; infinity for a diverged run."""
    if result["status"] != "ok":
        return inf
    last = result["curve"][-1]
    return last.get("nll", last.get("mse", inf))


def tokens_trained(result: CellResult) -> int:
    """Return the tokens that a run was trained on up to its last evaluation; 0 if it had none."""
    return result["curve"][-1]["tokens"] if result["curve"] else 0


AT_CHANCE = 0.02
"""The distance above chance within which mean accuracy counts as chance: two points, the drop that the
default policy lets pass."""

LEARNED = 0.9
"""The accuracy from which on a run has learned, where the steps to learn are counted."""


def steps_to_reach(result: CellResult, level: float) -> float:
    """Return the first step at which validation accuracy reached a level; infinity if it never did."""
    return next((float(point["step"]) for point in result["curve"] if point["accuracy"] >= level), inf)


def accuracies_by_test(result: CellResult) -> list[float] | None:
    """Return the `accuracy` of each of several tests; None if there is one alone, or nothing was measured."""
    if "tests" not in result:
        return None
    if result["status"] == "diverged":
        return [test["chance"] for test in result["tests"]]
    return [test["metrics"]["accuracy"] for test in result["tests"]] if result["status"] == "ok" else None


def above_chance(accuracy: float, chance: float) -> float:
    """Return accuracy scaled so that chance is 0 and a perfect score 1; 0 if chance is 1."""
    return (accuracy - chance) / (1 - chance) if chance < 1 else 0.0

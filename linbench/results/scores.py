"""What a stored result counts as beside others, and beside chance."""

from math import inf

from linbench.results.schema.cells import CellResult


def accuracy(result: CellResult) -> float | None:
    """Test accuracy; chance for a diverged run; None where nothing was measured."""
    if result["status"] == "diverged":
        return float(result["chance"])
    return result["metrics"].get("accuracy") if result["status"] == "ok" else None


def validation_accuracy(result: CellResult) -> float | None:
    """At the end of training; chance for a diverged run; None where nothing was measured."""
    if result["status"] == "diverged":
        return float(result["chance"])
    return float(result["curve"][-1]["accuracy"]) if result["status"] == "ok" else None


def validation_loss(result: CellResult) -> float:
    """Return the validation loss at the end of training, whichever the task has; infinity for a diverged
    run."""
    if result["status"] != "ok":
        return inf
    last = result["curve"][-1]
    return last.get("nll", last.get("mse", inf))


LEARNED = 0.9
"""The accuracy that is asked for where it is asked how soon."""


def steps_to(result: CellResult, level: float) -> float:
    """The first step at which validation accuracy was as high; infinity where it never was."""
    return next((float(point["step"]) for point in result["curve"] if point["accuracy"] >= level), inf)


def accuracies_by_test(result: CellResult) -> list[float] | None:
    """As `accuracy`, for each of several tests."""
    if result["status"] == "diverged":
        return [test["chance"] for test in result["tests"]]
    return [test["metrics"]["accuracy"] for test in result["tests"]] if result["status"] == "ok" else None


def above_chance(accuracy: float, chance: float) -> float:
    """0 at chance, and where chance is all there is; 1 where all is right."""
    return (accuracy - chance) / (1 - chance) if chance < 1 else 0.0

"""Results without what no table, figure or claim reads."""

from linbench.results.record import is_cell
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult


def thinned(result: Result) -> Result:
    """Return a result as a thin pack holds it.

    Runs that chose a learning rate, and rungs that a ladder has passed, lose their slices (accuracy by
    position, distance and the like) and all points of their curve but the last. These are most of a result,
    and only those of reported runs are shown.
    """
    if not is_cell(result) or result["purpose"] == "report":
        return result
    thin: CellResult = {**result, "curve": result["curve"][-1:], "slices": {}}
    if "tests" in thin:
        thin["tests"] = [{**test, "slices": {}} for test in thin["tests"]]
    return thin

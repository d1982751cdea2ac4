"""The agreement of ranks over the suite `leaderboard` with those over all cells of `capacity` and `zoo`."""

from functools import cache

from linbench.engine.submit import Measured
from linbench.experiments.suite import expand, load
from linbench.report.table import of_texts
from linbench.results.comparison import comparisons
from linbench.results.ranks import Ranks, ranks_of
from linbench.results.reliability import tau
from tests.results.packed import results_of_packs

KIND = "NVIDIA H200"
CAMPAIGN = ("capacity", "zoo")
BOARD = "leaderboard"


@cache
def _measured() -> Measured:
    """Return the results of these suites; kept, since to read them takes seconds."""
    stored = Measured()
    stored.add(results_of_packs(*CAMPAIGN, BOARD))
    return stored


@cache
def ranks_over(*suites: str, among: frozenset[str] | None = None) -> Ranks:
    """Return the ranks of all models that have been asked every cell of some suites on an H200.

    Args:
        suites: their names.
        among: models to rank; by default all.
    """
    cells = [cell for name in suites for cell in expand(load(name), device="cpu").cells]
    results = _measured().of({**cell.identity, "device": KIND} for cell in cells)
    found = ranks_of(comparisons(one for one in results if among is None or one["label"] in among))
    assert found is not None
    return found


def both() -> tuple[Ranks, Ranks]:
    """Return the ranks of the models that all cells have been asked, over all of them and over the six."""
    whole = ranks_over(*CAMPAIGN)
    return whole, ranks_over(BOARD, among=frozenset(whole.mean))


def agreement(*left_out: str) -> float:
    """Return Kendall's tau-b of both orders, without some models."""
    orders = [{model: mean for model, mean in each.mean.items() if model not in left_out} for each in both()]
    found = tau(*orders)
    assert found is not None
    return found


def without_each() -> list[float]:
    """Return the agreement without each model in turn."""
    return [agreement(model) for model in ranks_over(*CAMPAIGN).mean]


def among_more() -> tuple[int, float]:
    """Return the number of models with the six cells, and tau of the first models' order among them."""
    whole, more = ranks_over(*CAMPAIGN).mean, ranks_over(BOARD).mean
    found = tau(whole, {model: more[model] for model in whole})
    assert found is not None
    return len(more), found


def table() -> str:
    """Return the table of docs/decisions/0017-leaderboard.md: the mean ranks of each model in both."""
    whole, board = (each.mean for each in both())
    rows = [[model, f"{mean:.2f}", f"{board[model]:.2f}"] for model, mean in whole.items()]
    return of_texts(["model", "all tasks", "leaderboard"], rows, left=("model",)).body() + "\n"


if __name__ == "__main__":
    print(table(), agreement(), without_each())

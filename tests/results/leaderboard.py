"""The agreement of ranks over the suite `leaderboard` with those over all cells of `capacity` and `zoo`."""

from functools import cache

from linbench.engine.submit import Measured
from linbench.experiments.suite import expand, load
from linbench.report.table import of_texts
from linbench.results.comparison import comparisons
from linbench.results.ranks import Ranks, ranks_of
from linbench.results.reliability import tau
from linbench.results.store import Store
from tests.results.drawn import ROOT

KIND = "NVIDIA H200"
CAMPAIGN = ("capacity", "zoo")
BOARD = "leaderboard"


@cache
def ranks_over(*suites: str) -> Ranks:
    """Return the ranks of all models that have been asked every cell of some suites on an H200."""
    cells = [cell for name in suites for cell in expand(load(name), device="cpu").cells]
    stored = Measured()
    stored.add(Store(ROOT / "results" / "h200").all())
    found = ranks_of(comparisons(stored.of({**cell.identity, "device": KIND} for cell in cells)))
    assert found is not None
    return found


def agreement(*left_out: str) -> float:
    """Return Kendall's tau-b of both orders, without some models."""
    orders = [
        {model: mean for model, mean in ranks.mean.items() if model not in left_out}
        for ranks in (ranks_over(*CAMPAIGN), ranks_over(BOARD))
    ]
    found = tau(*orders)
    assert found is not None
    return found


def without_each() -> list[float]:
    """Return the agreement without each model in turn."""
    return [agreement(model) for model in ranks_over(*CAMPAIGN).mean]


def table() -> str:
    """Return the table of docs/decisions/0017-leaderboard.md: the mean ranks of each model in both."""
    whole, board = ranks_over(*CAMPAIGN).mean, ranks_over(BOARD).mean
    rows = [[model, f"{mean:.2f}", f"{board[model]:.2f}"] for model, mean in whole.items()]
    return of_texts(["model", "all tasks", "leaderboard"], rows, left=("model",)).body() + "\n"


if __name__ == "__main__":
    print(table(), agreement(), without_each())

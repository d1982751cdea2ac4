"""The table of decision 16: how far both runs of a seed end apart, and how far seeds do.

`python -m tests.pages.blocks` writes it into docs/decisions/0016-pairs.md, from the scores beside that page.
`python -m tests.results.pairs FOLDER` collects these from a folder of results.
"""

import sys
from pathlib import Path

import pandas as pd

from linbench.report.table import of_texts
from linbench.results.matching import jitter_of
from linbench.results.record import seed_of
from linbench.results.scores import accuracy
from linbench.results.store import Store

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
SCORES = FOLDER / "0016-pairs.csv.xz"

TWIN, CHANGED = 1e-6, 1e-2
"""The relative changes of first weights: a trifle, and as much as a change of code might make."""


def collect(folder: Path) -> pd.DataFrame:
    """Return a row for each result of a folder."""
    rows = [
        {
            "task": result["cell"]["task"]["name"],
            "model": result["label"],
            "jitter": jitter_of(result),
            "seed": seed_of(result),
            "accuracy": accuracy(result),
        }
        for result in Store(folder).all()
    ]
    return pd.DataFrame(rows).sort_values(["task", "model", "jitter", "seed"], ignore_index=True)


def pairs() -> dict[tuple[str, str], pd.DataFrame]:
    """Return for each task and model the accuracies by seed, a column for each jitter."""
    scores = pd.read_csv(SCORES)
    return {
        (task, model): own.pivot(index="seed", columns="jitter", values="accuracy")
        for (task, model), own in scores.groupby(["task", "model"])
    }


def table() -> str:
    """Return the table of docs/decisions/0016-pairs.md."""
    names = ["task", "model", "accuracy", "between seeds", "twins", "one part in 100"]
    rows = []
    for (task, model), own in pairs().items():
        apart = [(own[jitter] - own[0.0]).std() for jitter in (TWIN, CHANGED)]
        numbers = (own[0.0].mean(), own[0.0].std(), *apart)
        rows.append([task, model, *(f"{number:.3f}" for number in numbers)])
    return of_texts(names, rows, left=("task", "model")).body() + "\n"


if __name__ == "__main__":
    collect(Path(sys.argv[1])).to_csv(SCORES, index=False)

"""The table of decision 15: what a search loses that chooses its learning rate a rung earlier.

`python -m tests.pages.blocks` writes it into docs/decisions/0015-rungs-of-searches.md, from the scores beside
that page.
`python -m tests.results.rungs_of_searches FOLDER` collects these from a folder of results.
"""

import json
import sys
from pathlib import Path

import pandas as pd

from linbench.results.record import is_cell, seed_of
from linbench.results.schema.cells import CellResult
from linbench.results.scores import validation_accuracy, validation_levels
from linbench.results.store import Store

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
SCORES = FOLDER / "0015-rungs-of-searches.csv.xz"

BANDS = [-1.0, 0.5, 0.7, 0.9, 1.01]
"""Bounds of the bands of the share that the best rate has learned with twice the first budget."""

_SEARCH = ["task", "cell", "model"]


def collect(folder: Path) -> pd.DataFrame:
    """Return a row for each tuning run of a folder, with the share of the task that it learned."""
    rows = [
        row
        for result in Store(folder).all()
        if is_cell(result) and result["purpose"] == "tuning" and (row := _row(result))
    ]
    found = pd.DataFrame(rows)
    cells = found["cell"].drop_duplicates().tolist()  # tasks may stand in a suite twice
    found["cell"] = found["cell"].map(cells.index)
    return found.sort_values([*_SEARCH, "lr", "rung", "seed"], ignore_index=True)


def _row(result: CellResult) -> dict[str, object] | None:
    accuracy, (chance, optimum) = validation_accuracy(result), validation_levels(result)
    settings: dict[str, object] = {**result["cell"]["protocol"]["settings"]}
    if accuracy is None:
        return None
    return {
        "task": result["cell"]["task"]["name"],
        "cell": json.dumps(result["cell"]["task"]["test"]),
        "model": result["label"],
        "lr": settings["lr"],
        "rung": 1 << int(str(settings.get("doublings", 0))),
        "seed": seed_of(result),
        "share": round((accuracy - chance) / (optimum - chance), 4),
    }


def losses() -> pd.DataFrame:
    """Return a row for each search that tried rates with twice and four times the first budget.

    Columns: `share`, learned by the best rate with twice the budget; `lost`, what that rate has learned less
    with four times the budget than the best one there; `noise`, the standard deviation of the mean of the
    seeds of a rate there.
    """
    scores = pd.read_csv(SCORES)
    rates = scores.groupby([*_SEARCH, "rung", "lr"])["share"].agg(["mean", "sem"]).reset_index()
    rows = []
    for _, search in rates.groupby(_SEARCH):
        twice, four = (search[search["rung"] == rung].set_index("lr") for rung in (2, 4))
        if twice.empty or four.empty:
            continue
        chosen = twice["mean"].idxmax()
        if chosen in four.index:
            lost = four["mean"].max() - four["mean"][chosen]
            rows.append({"share": twice["mean"].max(), "lost": lost, "noise": four["sem"].mean()})
    return pd.DataFrame(rows)


def table() -> str:
    """Return the table as Markdown."""
    lines = [
        "| learned on the second rung | searches | lost, mean | lost, median | lost, most | noise |",
        "|---|---|---|---|---|---|",
    ]
    found = losses()
    for band, own in found.groupby(pd.cut(found["share"], BANDS, right=False), observed=True):
        low, high, lost = max(band.left, 0.0), min(band.right, 1.0), own["lost"]
        lines.append(
            f"| {low:.1f} to {high:.1f} | {len(own)} | {lost.mean():.3f} | {lost.median():.3f} |"
            f" {lost.max():.3f} | {own['noise'].mean():.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    collect(Path(sys.argv[1])).to_csv(SCORES, index=False)

"""The table of decision 14: what twice the training brings to tests that are longer than training.

`python -m tests.pages.blocks` writes it into docs/decisions/0014-validation.md, from the scores beside that
page.
`python -m tests.results.beyond FOLDER` collects these from a folder of results.
"""

import sys
from pathlib import Path

import pandas as pd

from linbench.results.record import is_cell, seed_of
from linbench.results.schema.cells import CellResult, Metrics
from linbench.results.store import Store

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
PAGE, SCORES = FOLDER / "0014-validation.md", FOLDER / "0014-validation.csv.xz"

LEARNED = 0.985
"""Mean accuracy at the lengths of training from which on a run counts as having learned them.

It is a point below where a ladder ends, so that runs with more training are left to compare.
"""

LONGEST = {"copy": 65, "needle": 256, "noise_recall": 312, "parity": 32}
"""Longest sequences of training by task, of the tasks that were learned."""

FEWEST = 10
"""The fewest runs of a row."""

_RUN = ["task", "model", "purpose", "lr", "seed"]


def collect(folder: Path) -> pd.DataFrame:
    """Return a row for each test of every stored result."""
    results = [result for result in Store(folder).all() if is_cell(result)]
    rows = [
        {**_run(result), "seq_len": length, "accuracy": round(metrics["accuracy"], 4)}
        for result in results
        if result["status"] == "ok"
        for length, metrics in _tests(result)
    ]
    return pd.DataFrame(rows).sort_values([*_RUN, "rung", "seq_len"], ignore_index=True)


def _tests(result: CellResult) -> list[tuple[int, Metrics]]:
    """Return lengths and metrics of all tests; a single test names its length in its settings alone."""
    if "tests" in result:
        return [(test["seq_len"], test["metrics"]) for test in result["tests"]]
    (only,) = result["cell"]["task"]["test"]
    return [(int(str(only["settings"]["seq_len"])), result["metrics"])]


def _run(result: CellResult) -> dict[str, object]:
    settings: dict[str, object] = {**result["cell"]["protocol"]["settings"]}
    return {
        "task": result["cell"]["task"]["name"],
        "model": result["label"],
        "purpose": "tuning" if result["purpose"] == "tuning" else "report",
        "lr": settings["lr"],
        "seed": seed_of(result),
        "rung": 1 << int(str(settings.get("doublings", 0))),
    }


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Return runs that have learned the lengths of training, beside themselves with twice the training.

    Columns: task, rung, `within` and `beyond`, mean accuracies at lengths of training and at longer ones, and
    both with twice the training, `within_2` and `beyond_2`.
    """
    own = scores[scores["task"].isin(list(LONGEST))]
    place = (own["seq_len"] <= own["task"].map(LONGEST)).map({True: "within", False: "beyond"})
    means = (
        own.groupby([*_RUN, "rung", place.rename("place")])["accuracy"].mean().unstack("place").reset_index()
    )
    halved = means.assign(rung=means["rung"] // 2)
    both = means.merge(halved, on=[*_RUN, "rung"], suffixes=("", "_2"))
    return both[both["within"] >= LEARNED]


def table() -> str:
    """Return the table as Markdown."""
    lines = [
        "| task | training | runs | beyond | gain with twice | gain within |",
        "|---|---|---|---|---|---|",
    ]
    for (task, rung), own in pairs(pd.read_csv(SCORES)).groupby(["task", "rung"]):
        if len(own) < FEWEST:
            continue
        beyond, within = own["beyond_2"] - own["beyond"], own["within_2"] - own["within"]
        lines.append(
            f"| {task} | {rung}x | {len(own)} | {own['beyond'].mean():.3f} |"
            f" {beyond.mean():+.3f} ± {beyond.std():.3f} | {within.mean():+.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    collect(Path(sys.argv[1])).to_csv(SCORES, index=False)

"""The table of decision 13: how often twice the tokens bring more, by the mark `undertrained`.

`python -m tests.pages.blocks` writes it into docs/decisions/0013-undertrained.md, from the scores beside that
page. `python -m tests.results.doublings FOLDER...` collects these from folders of results.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from linbench.results.record import is_cell
from linbench.results.rungs import FLAT_RUNGS, LEAST_GAIN, Rung, ending
from linbench.results.schema.cells import CellResult
from linbench.results.scores import Levels
from linbench.results.store import Store
from linbench.results.undertrained import lower_budgets

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
PAGE, SCORES = FOLDER / "0013-undertrained.md", FOLDER / "0013-undertrained.csv.xz"

MORE = 0.02
"""Gain in validation accuracy with twice the tokens above which more training was missing: two points."""

BELOW = 0.97
"""Accuracy below which runs are counted apart: those above can hardly gain two points."""


def collect(folders: Iterable[Path]) -> pd.DataFrame:
    """Return a row for each stored result whose cell is stored with twice its budget, too."""
    rows = []
    for folder in folders:
        results = [result for result in Store(folder).all() if is_cell(result)]
        for place, lower in lower_budgets(results).items():
            *_, quarter, half, own = [None, None, *lower]
            assert own is not None
            rows.append(_row(own, results[place]) | _score("half", half) | _score("quarter", quarter))
    columns = ["schedule", "device", "task", "model", "lr", "seed", "tokens"]
    return pd.DataFrame(rows).sort_values(columns, kind="stable", ignore_index=True)


def _row(result: CellResult, twice: CellResult) -> dict[str, object]:
    curve = result["curve"]
    before_last_fifth = curve[len(curve) * 4 // 5 - 1]
    cell = result["cell"]
    settings: dict[str, object] = {**cell["protocol"]["settings"]}
    return {
        "task": cell["task"]["name"],
        "model": result["label"],
        "device": cell["device"],
        "seed": cell["seed"],
        "lr": settings["lr"],
        "schedule": settings["schedule"],
        "tokens": curve[-1]["tokens"],
        "chance": result["chance"],
        "optimum": result.get("optimum", 1.0),
        "last_fifth": curve[-1]["accuracy"] - before_last_fifth["accuracy"],
        **_score("own", result),
        "twice": Rung.of(twice).accuracy,
    }


def _score(name: str, result: CellResult | None) -> dict[str, float | None]:
    accuracy, loss = Rung.of(result) if result else (None, None)
    return {f"{name}_accuracy": accuracy, f"{name}_loss": loss}


def load() -> pd.DataFrame:
    """Return the stored scores."""
    return pd.read_csv(SCORES)


RULE = "two flat steps"
"""The name of the rule by which results are marked today."""


def marked(scores: pd.DataFrame) -> dict[str, "pd.Series[bool]"]:
    """Return which runs are marked, by what they are judged by."""
    in_accuracy = scores.assign(**dict.fromkeys(["quarter_loss", "half_loss", "own_loss"], 1.0))
    return {
        "gain in the last fifth": scores["last_fifth"] > LEAST_GAIN,
        "one flat step": _by_rungs(scores, ["half", "own"], flat=1),
        RULE: _by_rungs(scores, ["quarter", "half", "own"], flat=FLAT_RUNGS),
        "two steps flat in accuracy": _by_rungs(in_accuracy, ["quarter", "half", "own"], flat=FLAT_RUNGS),
    }


def _by_rungs(scores: pd.DataFrame, names: list[str], flat: int) -> "pd.Series[bool]":
    """Return which runs are marked if a ladder ends at the optimum or after so many flat rungs."""

    def goes_on(row: "pd.Series[float]") -> bool:
        known = [name for name in names if row.notna()[f"{name}_accuracy"]]
        rungs = [Rung(row[f"{name}_accuracy"], row[f"{name}_loss"]) for name in known]
        how = ending(rungs, Levels(row["chance"], row["optimum"]), most=len(rungs), flat=flat)
        return how == "cap"

    return scores.apply(goes_on, axis=1)


KINDS = {
    "trained anew": "budgets with a cosine, each trained anew",
    "GPU": "rungs of ladders on a GPU",
    "CPU": "rungs of small ladders on a CPU",
}
"""The kinds of runs, and what the page calls them."""


def kind(scores: pd.DataFrame) -> "pd.Series[str]":
    """Return the kind of each run."""
    rungs = scores["device"].eq("cpu").map({True: "CPU", False: "GPU"})
    return rungs.where(scores["schedule"] == "wsd", "trained anew")


def table() -> str:
    """Return the table in Markdown: of marked and of unmarked runs, how many gained with twice the tokens."""
    scores = load()
    scores["gained"] = scores["twice"] - scores["own_accuracy"] > MORE
    lines = [
        "| runs | judged by | of marked gained | of unmarked gained | of unmarked below .97 gained |",
        "|---|---|---|---|---|",
    ]
    kinds = kind(scores)
    for name, words in KINDS.items():
        own = scores[kinds == name]
        for rule, mark in marked(own).items():
            groups = (mark, ~mark, ~mark & (own["own_accuracy"] < BELOW))
            lines.append(f"| {words} | {rule} | {' | '.join(_share(own[each]) for each in groups)} |")
    return "\n".join(lines) + "\n"


def _share(runs: pd.DataFrame) -> str:
    count, gained = len(runs), int(runs["gained"].sum())
    return f"{gained} of {count} ({gained / count:.0%})" if count else "none"


if __name__ == "__main__":
    collect([Path(name) for name in sys.argv[1:]]).to_csv(SCORES, index=False, float_format="%.7g")

"""The table of docs/ci.md: what `linbench compare` prints of stored results."""

from linbench.engine.compare import plan_comparison
from linbench.experiments.suite import load
from linbench.report.tables.side_by_side import table
from linbench.results.store import Store
from tests.results.drawn import ROOT

SHOWN = (
    "model",
    "accuracy",
    "seeds",
    "difference",
    "p",
    "verdict",
    "read with",
    "state floats",
    "training, thousand tokens/s",
)
"""The columns that the page has room for."""


def compare() -> str:
    """Return the table in Markdown."""
    plan = plan_comparison(["gated_deltanet", "deltanet"], load("quick"), against="reference", device="cpu")
    (found,) = plan.tables([], Store(ROOT / "results" / "none"))
    shown = table(found)
    places = [shown.names.index(name) for name in SHOWN]
    rows = [SHOWN, ["---"] * len(SHOWN), *([row[at] for at in places] for row in shown.texts)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)

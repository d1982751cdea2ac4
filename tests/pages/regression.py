"""The table and the figure of docs/which-optimiser.md, from the stored rows beside it.

`python -m tests.pages.regression` computes the rows of `linbench untrained regression` anew and draws them;
`python -m tests.pages.blocks` then makes the table.
"""

import io
from typing import Any

import pandas as pd

from linbench.common import escape
from linbench.verify.regression import regression
from linbench.verify.regression_panels import drawing, panels, short
from tests.pages.fact import Fact
from tests.results.drawn import ROOT

FOLDER = ROOT / "docs" / "which-optimiser"
ROWS, PICTURE, CAPTION = (FOLDER / f"regression.{suffix}" for suffix in ("csv", "svg", "txt"))
PAGE = "docs/which-optimiser.md"
DIGITS = 6
"""Significant digits of a stored number."""


def load() -> list[dict[str, Any]]:
    """Return the stored rows."""
    return pd.read_csv(ROWS).to_dict("records")


def table() -> str:
    """Return a table of the error of every rule, by condition and by drift."""
    by_condition, by_drift = panels(load())
    titles = [f"condition {at:g}" for at in by_condition.at] + [f"drift {at:g}" for at in by_drift.at]
    rows = [
        f"| {name} | {' | '.join(map(short, [*errors, *by_drift.errors[name]]))} |"
        for name, errors in by_condition.errors.items()
    ]
    return (
        "\n".join([f"| update rule | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|", *rows]) + "\n"
    )


def times_exact() -> list[str]:
    """Return how many times the exact solution's error that of one step is, without a drift and with most."""
    errors = panels(load())[1].errors
    without, *_, most = (one / best for one, best in zip(errors["one step"], errors["exact"], strict=True))
    return [f"{without:.0f}", f"{most:.2f}"]


FACTS = [
    Fact(
        PAGE,
        "one gradient step errs {} times as much as the exact solution where nothing drifts, and {} times as"
        " much at the largest drift",
        times_exact,
    )
]


def main() -> None:
    """Compute the rows anew, and draw them."""
    FOLDER.mkdir(exist_ok=True)
    text = io.StringIO()
    pd.DataFrame(regression()).to_csv(text, index=False, float_format=f"%.{DIGITS}g")
    ROWS.write_text(text.getvalue(), encoding="utf-8")
    drawn = drawing(load())
    PICTURE.write_bytes(drawn.pictures(["svg"])["svg"])
    CAPTION.write_text(f"{escape.one_line(drawn.caption)}\n{drawn.about}.\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The table and the figure of docs/gradients.md, from the stored rows beside it.

`python -m tests.pages.gradient` computes the rows of `linbench untrained gradient` anew and draws them, which
a new variant needs, too; `python -m tests.pages.blocks` then makes the table.
"""

import io
from typing import Any

import pandas as pd

from linbench.common import escape
from linbench.common.text import pluralize
from linbench.report.figure import Drawing
from linbench.verify.gradient import DISTANCES, TRIALS, gradient, shipped
from linbench.verify.gradient_panels import drawing, lines, short
from linbench.verify.update_rules import Trials
from tests.pages.fact import Fact
from tests.results.drawn import ROOT

FOLDER = ROOT / "docs" / "gradients"
ROWS, PICTURE, CAPTION = (FOLDER / f"gradient.{suffix}" for suffix in ("csv", "svg", "txt"))
PAGE = "docs/gradients.md"
FAR = DISTANCES[-1]
DIGITS = 3
"""Digits of a stored logarithm behind the point."""


def load() -> list[dict[str, Any]]:
    """Return the stored rows."""
    rows = pd.read_csv(ROWS).to_dict("records")
    return [row | {"log_size": None if pd.isna(row["log_size"]) else row["log_size"]} for row in rows]


def drawn() -> Drawing:
    """Return the figure of the stored rows."""
    return drawing(load(), trials=pluralize(TRIALS, "draw"), dim=Trials().dim, form="native")


def table() -> str:
    """Return a table of log10 of the gradient of every variant, by distance."""
    distances, sizes = lines(load())
    rows = [f"| `{model}` | {' | '.join(map(short, line))} |" for model, line in sizes.items()]
    head = f"| variant | {' | '.join(map(str, distances))} |"
    return "\n".join([head, "|---" * (len(distances) + 1) + "|", *rows]) + "\n"


def changes() -> dict[str, float | None]:
    """Return how log10 of the gradient changes from a distance of 1 to the farthest; None: none arrives."""
    distances, sizes = lines(load())
    near, far = distances.index(1), distances.index(FAR)
    return {
        model: None if line[far] is None else line[far] - line[near]  # type: ignore[operator]
        for model, line in sizes.items()
    }


def kept() -> list[str]:
    """Return the number of variants, and of those in which a tenth or more of the gradient is left."""
    found = changes()
    return [str(len(found)), str(sum(change is not None and change >= -1 for change in found.values()))]


def lost() -> list[str]:
    """Return the variants in which less than a millionth is left."""
    names = [model for model, change in changes().items() if change is not None and change < -6]
    return [", ".join(f"`{name}`" for name in sorted(names))]


def grown() -> list[str]:
    """Return by how much the gradient of the one variant grows in which it becomes tenfold or more."""
    grows = {model: change for model, change in changes().items() if change is not None and change > 1}
    change = grows.pop("titans_mac")
    assert not grows
    return [f"{float(f'{10**change:.2g}'):,.0f}"]


FACTS = [
    Fact(
        PAGE,
        "Of {} variants, {} have a gradient at a distance of 256 that is at least a tenth of that at a"
        " distance of 1",
        kept,
    ),
    Fact(PAGE, "Less than a millionth of it is left in {}.", lost),
    Fact(PAGE, "In `titans_mac` it grows to {} times as much.", grown),
]


def main() -> None:
    """Compute the rows anew, and draw them."""
    FOLDER.mkdir(exist_ok=True)
    text = io.StringIO()
    pd.DataFrame(gradient(shipped())).to_csv(text, index=False, float_format=f"%.{DIGITS}f")
    ROWS.write_text(text.getvalue(), encoding="utf-8")
    picture = drawn()
    PICTURE.write_bytes(picture.pictures(["svg"])["svg"])
    CAPTION.write_text(f"{escape.one_line(picture.caption)}\n{picture.about}.\n", encoding="utf-8")


if __name__ == "__main__":
    main()

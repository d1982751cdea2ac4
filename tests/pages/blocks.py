"""Every table of the pages that a command makes from stored results: the one list of them.

In the source of a page such a table stands below a comment with its name, `<!-- table: NAME -->`, or with the
file that holds it, `<!-- results/STORE/tables/NAME.md -->`. `python -m tests.pages.blocks` makes all of them
anew; `make drawn` makes the files.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import speed_page
from tests.helpers import starting_gates
from tests.pages import floors, gradient, regression, trained_gradient, variants
from tests.pages.compared import compare
from tests.pages.numbers import MADE_TABLE
from tests.results import beyond, doublings, leaderboard, pairs, rungs_of_searches, schedules, softmax
from tests.results.drawn import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
"""All pages that tell what was measured. CHANGELOG.md is history."""

WHOLE = {
    "docs/claims.md": "linbench claims --save docs/claims.md",
    "docs/reproduction.md": "linbench reproduce --save docs/reproduction.md",
}
"""Pages that a command makes as a whole, each with the command; `tests/results/test_reference_results.py`
holds them to stored results."""

MADE = "python -m tests.pages.blocks"
FILES = "make drawn"


class Block(NamedTuple):
    """A table of a page.

    Attributes:
        page: that it stands on.
        name: in the comment above it.
        command: that makes it anew.
        make: a function that returns its lines.
    """

    page: str
    name: str
    command: str
    make: Callable[[], str]


def kept_table(name: str) -> str:
    """Return the table in a file that `make drawn` keeps."""
    return (ROOT / name).read_text(encoding="utf-8").split("\n\n")[1].rstrip("\n") + "\n"


def files_shown() -> list[tuple[str, str]]:
    """Return the pages and files of all tables that stand there as files hold them."""
    return [
        (relative(page), file)
        for page in PAGES
        for _, file, _ in MADE_TABLE.findall(page.read_text(encoding="utf-8"))
        if file
    ]


def relative(page: Path) -> str:
    """Return a page as this file names it."""
    return page.relative_to(ROOT).as_posix()


def blocks() -> list[Block]:
    """Return all tables of all pages."""
    return [
        Block("README.md", "variants", MADE, variants.table),
        *(Block("docs/speed.md", name, MADE, make) for name, make in speed_page.TABLES.items()),
        *(
            Block("docs/decisions/0011-ladders.md", name, MADE, make)
            for name, make in schedules.TABLES.items()
        ),
        Block("docs/decisions/0013-undertrained.md", "doublings", MADE, doublings.table),
        Block("docs/decisions/0014-validation.md", "beyond", MADE, beyond.table),
        Block("docs/decisions/0015-rungs-of-searches.md", "lost", MADE, rungs_of_searches.table),
        Block("docs/results.md", "softmax", MADE, softmax.table),
        Block("docs/decisions/0016-pairs.md", "pairs", MADE, pairs.table),
        Block("docs/decisions/0017-leaderboard.md", "leaderboard", MADE, leaderboard.table),
        Block("docs/ci.md", "compare", MADE, compare),
        Block("docs/tasks.md", "floors", MADE, floors.table),
        Block("docs/which-optimiser.md", "learners", MADE, variants.learners),
        Block("docs/which-optimiser.md", "regression", MADE, regression.table),
        Block("docs/gradients.md", "gradient", MADE, gradient.table),
        Block("docs/gradients.md", "gradient-after", MADE, trained_gradient.table),
        Block("docs/initial-values.md", "starting-gates", MADE, starting_gates.table),
        *(Block(page, file, FILES, partial(kept_table, file)) for page, file in files_shown()),
    ]


def shown(page: str) -> dict[str, str]:
    """Return the made tables of a page by their names."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return {name or file: lines for name, file, lines in MADE_TABLE.findall(text)}


def main() -> None:
    """Make the tables of all pages anew."""
    by_page: dict[str, dict[str, Callable[[], str]]] = {}
    for block in blocks():
        by_page.setdefault(block.page, {})[block.name] = block.make
    for page, makers in by_page.items():
        path = ROOT / page

        def renewed(found: re.Match[str], makers: dict[str, Callable[[], str]] = makers) -> str:
            mark = found[0].partition("\n")[0]
            return f"{mark}\n{makers[found[1] or found[2]]()}"

        path.write_text(MADE_TABLE.sub(renewed, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

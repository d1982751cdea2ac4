"""Results in packs, read without the checks of every line, which take most of the time of reading.

`linbench results verify` and every other reader check them.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from linbench.results.comparison import Comparison, comparisons
from linbench.results.packs import SUFFIX, read_lines
from linbench.results.record import is_cell
from linbench.results.rescore import with_current_chance
from linbench.results.schema.cells import CellResult
from tests.results.drawn import ROOT


@cache
def packed(*names: str) -> list[Comparison]:
    """Return the comparisons of packs of the H200."""
    return comparisons(results_of_packs(*names))


def results_of_packs(*names: str) -> Iterator[CellResult]:
    """Yield the results of cells in packs of the H200."""
    for name in names:
        yield from unchecked(ROOT / "results" / "h200" / f"{name}{SUFFIX}")


def unchecked(pack: Path) -> Iterator[CellResult]:
    """Yield the results of cells in a pack."""
    for line in read_lines(pack):
        result = with_current_chance(json.loads(line))
        if is_cell(result):
            yield result

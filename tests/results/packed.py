"""Comparisons of a pack of stored results."""

import json
from functools import cache

from linbench.results.comparison import Comparison, comparisons
from linbench.results.packs import SUFFIX, read_lines
from linbench.results.rescore import with_current_chance
from tests.results.drawn import ROOT


@cache
def packed(*names: str) -> list[Comparison]:
    """Return the comparisons of packs of H200: to read these alone takes a fraction of the time."""
    paths = (ROOT / "results" / "h200" / f"{name}{SUFFIX}" for name in names)
    return comparisons(with_current_chance(json.loads(line)) for path in paths for line in read_lines(path))

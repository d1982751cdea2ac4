"""The tables and figures that the results in the repository make, and which of them its pages show.

Only what README.md and the pages in docs/ and results/ show is kept as files. Of all others
`results/drawn.json` has hashes: of each table's Markdown, CSV, LaTeX and JSON (numbers to nine digits), and
of each figure's caption, with the fingerprint of the results that it is drawn from. `make drawn` makes that
file and the shown files anew; a test holds them to the results.
"""

import hashlib
import json
import os
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from linbench.common.files import unused
from linbench.report.data import ReportData
from linbench.report.figure import Drawing
from linbench.report.figures import drawings
from linbench.report.table import save_tables
from linbench.report.tables import all_tables
from linbench.results.comparison import Comparison
from linbench.results.schema import Result
from linbench.results.store import Store

ROOT = Path(__file__).parents[2]
DRAWN = ROOT / "results" / "drawn.json"
STORED = ("cpu", "cpu/similarity", "cpu/zoo-quick", "h100", "h200", "h200/softmax", "h200/steps-to-kda")
STORES = {name: ROOT / "results" / name for name in STORED}
PAGES = [ROOT / "README.md", ROOT / "results" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_SHOWN = re.compile(r"\]\(([^)\s]+/(?:figures|tables)/[^)\s]+)\)|<!-- (results/\S+\.md) -->")


@cache
def kept(store: str) -> dict[str, list[Result]]:
    return Store(STORES[store]).by_kind()


@cache
def data(store: str) -> ReportData:
    return ReportData.from_kinds(kept(store))


def compared(store: str) -> list[Comparison]:
    return data(store).comparisons


def forget() -> None:
    """Give back the memory of thousands of results."""
    kept.cache_clear()
    data.cache_clear()


def figures_of(store: str) -> dict[str, Drawing]:
    """Return every figure that the results of a store make, by the name of its files."""
    found: dict[str, Drawing] = {}
    for drawing in drawings(data(store)):
        if drawing.draw(Figure()):
            found[unused(drawing.slug, found)] = drawing
    return found


def tables_of(store: str) -> dict[str, bytes]:
    """Return every table that the results of a store make, by the name of its file."""
    with tempfile.TemporaryDirectory() as folder:
        written = save_tables(all_tables(data(store)), Path(folder))
        return {path.name: path.read_bytes() for path in written}


def hashes(tables: dict[str, bytes], figures: dict[str, Drawing]) -> dict[str, Any]:
    """Return what `drawn.json` holds of a store."""
    return {
        "tables": {name: _sha256(text) for name, text in sorted(_by_table(tables).items())},
        "figures": {
            name: {"caption": _sha256(drawing.caption.encode()), "results": drawing.fingerprint[:DIGITS]}
            for name, drawing in sorted(figures.items())
        },
    }


def _by_table(tables: dict[str, bytes]) -> dict[str, bytes]:
    """Return the texts of a table's files one after the other, by the name that these share."""
    found: dict[str, bytes] = {}
    for name, text in sorted(tables.items()):
        slug, _, suffix = name.rpartition(".")
        found[slug] = found.get(slug, b"") + (_rounded(text) if suffix == "json" else text)
    return found


DIGITS = 16
"""Hexadecimal digits of a hash that are kept: enough that no change goes unnoticed by chance."""


PRECISION = 9
"""Digits of numbers in JSON that a hash knows: the last ones of logarithms depend on the processor."""


def _rounded(text: bytes) -> bytes:
    values = json.loads(text, parse_float=lambda number: float(f"{float(number):.{PRECISION}g}"))
    return json.dumps(values).encode()


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:DIGITS]


def shown_by(page: Path) -> list[Path]:
    """Return the tables and pictures of results that a page shows or links to, relative to the repository."""
    found = []
    for linked, table in _SHOWN.findall(page.read_text(encoding="utf-8")):
        path = ROOT / table if table else page.parent / linked
        found.append(Path(os.path.normpath(path)).relative_to(ROOT))
    return [path for path in found if path.parts[0] == "results"]


def shown(store: str, kind: str) -> set[str]:
    """Return the names of a store's `tables` or `figures` that any page shows."""
    folder = (STORES[store] / kind).relative_to(ROOT)
    return {path.name for page in PAGES for path in shown_by(page) if path.parent == folder}


def main() -> None:
    """Write `drawn.json` and the files that pages show anew, and remove those that none shows."""
    told = {}
    for store, folder in STORES.items():
        tables, figures = tables_of(store), figures_of(store)
        told[store] = hashes(tables, figures)
        _keep(folder / "tables", {name: tables[name] for name in shown(store, "tables")})
        pictures: dict[str, bytes] = {}
        for name in shown(store, "figures"):
            slug, _, suffix = name.rpartition(".")
            pictures[name] = figures[slug].pictures([suffix])[suffix]
        _keep(folder / "figures", pictures)
        print(f"{store}: {len(tables)} tables, {len(figures)} figures")
        forget()
    DRAWN.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if not files:
        folder.rmdir()


if __name__ == "__main__":
    main()

"""Tables and pictures in the README and the docs are those of the stored results, and none is missing.

`tests/results/drawn.py` makes them all, and has the names of those that are shown.
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from linbench.claims.claim import claims
from linbench.claims.figure import drawings as claim_drawings
from linbench.claims.page import page
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from linbench.common.files import pictures_folder
from linbench.experiments.registry import registry
from linbench.experiments.suite import load
from linbench.reproduction import stored as reproduced
from linbench.reproduction.document import document
from linbench.reproduction.figure import drawing as drawing_of_tables
from linbench.reproduction.ran import most, ran
from linbench.reproduction.table import reproductions
from linbench.results.folders import find_stores
from linbench.results.store import CELL, Store
from tests.results.drawn import (
    DRAWN,
    PAGES,
    ROOT,
    STORES,
    compared,
    figures_of,
    forget,
    hashes,
    kept,
    shown,
    shown_by,
    tables_of,
)

DEVICES = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}


def _device(store: str) -> str:
    """Return the device of a store, which its first folder names."""
    return DEVICES.get(store.partition("/")[0], "cpu")


REDRAW = "`make drawn` makes them anew"
each_store = pytest.mark.parametrize(
    "store", [pytest.param(name, marks=pytest.mark.slow if name != "cpu" else ()) for name in STORES]
)
"""Every store; those of GPUs are slow, with more than a thousand results each."""


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """Thousands of results would slow down whatever comes after."""
    yield
    forget()


def test_there_are_reference_results() -> None:
    assert {found.slug for found in compared("cpu")} == {
        "mqar-quick-native",
        "mqar-quick-hard-controlled",
        "variable_overwrite-quick-controlled",
    }


@pytest.mark.slow
def test_there_are_those_of_a_gpu() -> None:
    of_the_zoo = {part.task.partition("/")[0] for part in load("zoo").tasks}
    assert {found.task for found in compared("h200")} == {"mqar", *of_the_zoo}


@each_store
def test_they_are_of_one_kind_of_device(store: str) -> None:
    devices = {result["cell"]["device"] for found in compared(store) for result in found.results}
    devices |= {
        result["bench"]["device"]
        for kind, results in kept(store).items()
        if kind != CELL
        for result in results
        if _device(store) != "cpu"
    }
    assert devices == {_device(store)}


@each_store
def test_they_are_of_committed_code(store: str) -> None:
    results = itertools.chain(*kept(store).values())
    assert all(
        result["environment"]["commit"] and result["environment"]["dirty"] is False for result in results
    )


@each_store
def test_the_stored_results_make_the_tables_and_figures_that_are_noted(store: str) -> None:
    """None is changed, missing or left over. Pages show those that are made."""
    tables, figures = tables_of(store), figures_of(store)
    noted = json.loads(DRAWN.read_text(encoding="utf-8"))[store]
    made = hashes(tables, figures)
    for kind in ("tables", "figures"):
        both = {*noted[kind], *made[kind]}
        wrong = sorted(name for name in both if noted[kind].get(name) != made[kind].get(name))
        assert wrong == [], f"{kind} of {store} are not those in {DRAWN.name}; {REDRAW}"
    for name in shown(store, "tables"):
        assert (STORES[store] / "tables" / name).read_bytes() == tables[name], f"{name}: {REDRAW}"
    for name in shown(store, "figures"):
        picture = (STORES[store] / "figures" / name).read_bytes()
        assert figures[Path(name).stem].about.encode() in picture, f"{name}: {REDRAW}"


@pytest.mark.parametrize("store", STORES)
def test_no_table_or_picture_is_kept_that_no_page_shows(store: str) -> None:
    for kind in ("tables", "figures"):
        folder = STORES[store] / kind
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        assert there == shown(store, kind), REDRAW


def test_all_stores_are_noted() -> None:
    assert [*json.loads(DRAWN.read_text(encoding="utf-8"))] == [*STORES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_and_picture_of_results_that_a_page_links_to_is_there(page: Path) -> None:
    assert [str(path) for path in shown_by(page) if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_picture_that_is_shown_is_there(page: Path) -> None:
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [name for name in shown if not (page.parent / name).is_file()] == []


def cpu_pages() -> str:
    """Return the README and the guide, which show the results of the CPU."""
    return "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/usage.md"))


def test_the_readme_and_the_guide_show_tables_and_pictures_of_every_result_of_the_cpu() -> None:
    text = cpu_pages()
    for comparison in compared("cpu"):
        assert f"<!-- results/cpu/tables/{comparison.slug}.md -->\n| model" in text
        assert f"results/cpu/figures/{comparison.slug}-" in text


def test_the_numbers_of_these_tables_are_those_of_the_kept_results_by_todays_chance() -> None:
    """Means and scaled scores are worked out from the stored texts alone, with today's chance."""
    text, lines = cpu_pages(), Store(STORES["cpu"]).packed_lines()
    for comparison in compared("cpu"):
        (table,) = re.findall(rf"<!-- results/cpu/tables/{comparison.slug}.md -->\n((?:\|.*\n)+)", text)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        names, told = rows[0], {row[0]: row for row in rows[2:]}
        cls = registry("task").find(comparison.task).cls
        for row in comparison.rows:
            files = [json.loads(lines[result["id"]][0].text) for result in row.results]
            accuracy = fmean(one["metrics"]["accuracy"] for one in files)
            chance = cls(cls.Settings.parse(files[0]["cell"]["task"]["settings"], where="task")).chance()
            words = dict(zip(names, told.pop(row.label), strict=True))
            assert words["accuracy"].partition(" ")[0] == f"{accuracy:.3f}"
            assert words["scaled"] == f"{(accuracy - chance) / (1 - chance):.3f}"
            assert words["seeds"] == str(len(files))
        assert not told


@pytest.mark.slow
def test_the_page_of_claims_says_and_shows_what_the_kept_results_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    stored, path = Stored(find_stores(Path("results"))), Path("docs/claims.md")
    verdicts = [verdict(claim, stored) for claim in claims().values()]
    assert path.read_text(encoding="utf-8") == page(
        verdicts, stored, command="linbench claims --save docs/claims.md", beside=path
    )
    drawn = [drawing for found in verdicts for drawing in claim_drawings(found)]
    for drawing in drawn:
        assert drawing.about.encode() in (pictures_folder(path) / f"{drawing.slug}.svg").read_bytes()
    assert sorted(one.name for one in pictures_folder(path).iterdir()) == sorted(
        f"{one.slug}.svg" for one in drawn
    )


@pytest.mark.slow
def test_the_page_of_published_tables_says_and_shows_what_the_kept_results_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    stored, path = reproduced.Stored(find_stores(Path("results"))), Path("docs/reproduction.md")
    found = [most(ran(one, stored, "cpu")) for one in reproductions().values()]
    command = "linbench reproduce --save docs/reproduction.md"
    assert path.read_text(encoding="utf-8") == document(found, command=command, beside=path)
    picture = drawing_of_tables(found)
    file = pictures_folder(path) / f"{picture.slug}.svg"
    assert picture.about in file.read_text(encoding="utf-8")


def test_hard_tells_the_four_models_apart() -> None:
    """Every model's mean is a twentieth from the next.

    The sum is below, and softmax above, every seed of all others.
    """
    (hard,) = (found for found in compared("cpu") if found.slug == "mqar-quick-hard-controlled")
    ranked = sorted(hard.rows, key=lambda row: row.mean or 0.0)
    assert [row.label for row in ranked] == ["linear_attention", "gated_deltanet", "deltanet", "attention"]
    assert all(len(row.accuracies) == 3 for row in ranked)
    for lower, higher in itertools.pairwise(ranked):
        assert higher.mean - lower.mean >= 0.05, f"{lower.label} and {higher.label} are too close"
    assert max(ranked[0].accuracies) < min(value for row in ranked[1:] for value in row.accuracies)
    assert min(ranked[-1].accuracies) > max(value for row in ranked[:-1] for value in row.accuracies)

"""The tables and pictures in the repository, its README and its docs say what the stored results say, and none is missing."""

import itertools
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from linbench.report.exports import save_tables
from linbench.report.pictures import USUAL, drawings
from linbench.results import comparisons
from linbench.store import Store

ROOT = Path(__file__).parents[2]
STORES = {name: ROOT / "results" / name for name in ("cpu", "h200")}
KEPT = {(name, comparison.slug): comparison for name, folder in STORES.items() for comparison in comparisons(Store(folder).all())}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
each = pytest.mark.parametrize(("store", "slug"), KEPT, ids=str)
REDRAW = "`make figures`, and `make figures RESULTS=results/h200`, make them anew"
each_store = pytest.mark.parametrize("store", STORES)


def test_there_are_reference_results() -> None:
    assert {slug for store, slug in KEPT if store == "cpu"} == {"mqar-quick-native", "mqar-quick-hard-controlled", "variable_overwrite-quick-controlled"}
    assert {comparison.task for (store, _), comparison in KEPT.items() if store == "h200"} == {"mqar", "variable_overwrite", "parity"}


@each
def test_they_are_of_committed_code_and_one_kind_of_device(store: str, slug: str) -> None:
    results = KEPT[store, slug].results
    assert all(result["environment"]["commit"] and result["environment"]["dirty"] is False for result in results)
    assert {result["cell"]["device"] for result in results} == {{"cpu": "cpu", "h200": "NVIDIA H200"}[store]}


@each_store
def test_kept_tables_are_those_of_the_kept_results(store: str, tmp_path: Path) -> None:
    """Byte for byte; none is missing and none is left over."""
    made = {path.name: path.read_bytes() for path in save_tables([found for (name, _), found in KEPT.items() if name == store], tmp_path)}
    kept = {path.name: path.read_bytes() for path in (STORES[store] / "tables").iterdir()}
    assert sorted(kept) == sorted(made), REDRAW
    assert [name for name in made if kept[name] != made[name]] == [], REDRAW


@each
def test_kept_figures_were_drawn_from_the_kept_results(store: str, slug: str) -> None:
    """Each with the hash of these results inside and their caption beside; of what is not kept there is nothing to draw."""
    folder = STORES[store] / "figures"
    every = drawings(KEPT[store, slug])
    kept = [drawing for drawing in every if (folder / f"{drawing.slug}.txt").exists()]
    assert f"{slug}-learning-curves" in [drawing.slug for drawing in kept]
    assert [drawing.slug for drawing in every if drawing not in kept and drawing.draw(Figure())] == [], REDRAW
    assert {path.name for path in folder.glob(f"{slug}-*")} == {f"{drawing.slug}.{suffix}" for drawing in kept for suffix in ("txt", *USUAL)}, REDRAW
    for drawing in kept:
        assert (folder / f"{drawing.slug}.txt").read_text(encoding="utf-8") == f"{drawing.caption}\n{drawing.about}.\n", REDRAW
        assert all(drawing.about.encode() in (folder / f"{drawing.slug}.{suffix}").read_bytes() for suffix in USUAL), REDRAW


@each_store
def test_no_figure_is_kept_without_results(store: str) -> None:
    slugs = tuple(f"{slug}-" for name, slug in KEPT if name == store)
    assert [path.name for path in (STORES[store] / "figures").iterdir() if not path.name.startswith(slugs)] == [], REDRAW


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_picture_that_is_shown_is_there(page: Path) -> None:
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [name for name in shown if not (page.parent / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_that_is_shown_is_a_kept_one(page: Path) -> None:
    for name, table in re.findall(r"<!-- (results/\S+\.md) -->\n((?:\|.*\n)+)", page.read_text(encoding="utf-8")):
        assert (ROOT / name).read_text(encoding="utf-8").split("\n\n")[1] == table.rstrip("\n"), f"{page.name} does not show {name}"


def test_the_readme_shows_tables_and_pictures_of_every_result_of_the_cpu() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for store, slug in KEPT:
        if store == "cpu":
            assert f"<!-- results/cpu/tables/{slug}.md -->\n| model" in text
            assert f"(results/cpu/figures/{slug}-" in text


def test_hard_tells_the_four_models_apart() -> None:
    """In the mean every model is a twentieth from the next; the sum is below, and softmax above, every seed of all others."""
    hard = KEPT["cpu", "mqar-quick-hard-controlled"]
    ranked = sorted(hard.rows, key=lambda row: row.mean or 0.0)
    assert [row.label for row in ranked] == ["linear_attention", "gated_deltanet", "deltanet", "attention"]
    assert all(len(row.accuracies) == 3 for row in ranked)
    for lower, higher in itertools.pairwise(ranked):
        assert higher.mean - lower.mean >= 0.05, f"{lower.label} and {higher.label} are too close"
    assert max(ranked[0].accuracies) < min(value for row in ranked[1:] for value in row.accuracies)
    assert min(ranked[-1].accuracies) > max(value for row in ranked[:-1] for value in row.accuracies)

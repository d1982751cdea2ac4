"""The tables and pictures in the repository, its README and its docs say what the stored results say, and
none is missing."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest
from matplotlib.figure import Figure

from linbench.claims.claim import claims
from linbench.claims.figure import drawings as claim_drawings
from linbench.claims.page import page, pictures
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from linbench.experiments.registry import registry
from linbench.report.export import save_tables
from linbench.report.figure import USUAL, Drawing, drawings
from linbench.report.figures.benchmarks import bench_drawings
from linbench.report.figures.layer_speeds import speed_drawings
from linbench.report.style.wording import save_words
from linbench.report.tables.benchmarks import bench_tables
from linbench.report.tables.layer_speeds import tables as speed_tables
from linbench.results.comparison import Comparison, comparisons
from linbench.results.record import Result, benched
from linbench.results.store import CELL, SPEED, Store, below

ROOT = Path(__file__).parents[2]
STORES = {name: ROOT / "results" / name for name in ("cpu", "cpu/zoo-quick", "h100", "h200")}
DEVICES = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REDRAW = "`make figures RESULTS=results/cpu`, and so for each of the stores, makes them anew"
each_store = pytest.mark.parametrize(
    "store", [pytest.param(name, marks=pytest.mark.slow if name in DEVICES else ()) for name in STORES]
)
"""Those of GPUs are a thousand results each, and more."""


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """Thousands of results would slow down whatever comes after."""
    yield
    kept.cache_clear()
    compared.cache_clear()


@cache
def kept(store: str) -> dict[str, list[Result]]:
    return Store(STORES[store]).by_kind()


@cache
def compared(store: str) -> list[Comparison]:
    return comparisons(kept(store)[CELL])


def test_there_are_reference_results() -> None:
    assert {found.slug for found in compared("cpu")} == {
        "mqar-quick-native",
        "mqar-quick-hard-controlled",
        "variable_overwrite-quick-controlled",
    }


@pytest.mark.slow
def test_there_are_those_of_a_gpu() -> None:
    assert {found.task for found in compared("h200")} == {"mqar", "variable_overwrite", "parity"}


@each_store
def test_they_are_of_one_kind_of_device(store: str) -> None:
    devices = {result["cell"]["device"] for found in compared(store) for result in found.results}
    devices |= {
        result["bench"]["device"]
        for kind, results in kept(store).items()
        if kind != CELL
        for result in results
        if store in DEVICES
    }
    assert devices == {DEVICES.get(store, "cpu")}


@each_store
def test_they_are_of_committed_code(store: str) -> None:
    results = itertools.chain(*kept(store).values())
    assert all(
        result["environment"]["commit"] and result["environment"]["dirty"] is False for result in results
    )


@pytest.mark.slow
@each_store
def test_kept_tables_are_those_of_the_kept_results(store: str, tmp_path: Path) -> None:
    """Byte for byte; none is missing and none is left over."""
    written = [
        *save_tables(compared(store), tmp_path),
        *save_words([*speed_tables(kept(store)[SPEED]), *bench_tables(benched(kept(store)))], tmp_path),
    ]
    made = {path.name: path.read_bytes() for path in written}
    there = {path.name: path.read_bytes() for path in (STORES[store] / "tables").iterdir()}
    assert sorted(there) == sorted(made), REDRAW
    assert [name for name in made if there[name] != made[name]] == [], REDRAW


@each_store
def test_kept_figures_were_drawn_from_the_kept_results(store: str) -> None:
    """Of what is not kept there is nothing to draw."""
    folder = STORES[store] / "figures"
    for comparison in compared(store):
        every = drawings(comparison)
        there = [drawing for drawing in every if (folder / f"{drawing.slug}.txt").exists()]
        assert f"{comparison.slug}-learning-curves" in [drawing.slug for drawing in there]
        assert [drawing.slug for drawing in every if drawing not in there and drawing.draw(Figure())] == [], (
            REDRAW
        )
        assert_kept(there, folder)


@each_store
def test_kept_figures_of_speeds_were_drawn_from_the_kept_results(store: str) -> None:
    assert_kept(
        [*speed_drawings(kept(store)[SPEED], compared(store)), *bench_drawings(benched(kept(store)))],
        STORES[store] / "figures",
    )


def assert_kept(found: list[Drawing], folder: Path, formats: Sequence[str] = USUAL) -> None:
    """Each with the hash of its results inside and their caption beside."""
    for drawing in found:
        assert (folder / f"{drawing.slug}.txt").read_text(
            encoding="utf-8"
        ) == f"{drawing.caption}\n{drawing.about}.\n", REDRAW
        assert all(
            drawing.about.encode() in (folder / f"{drawing.slug}.{suffix}").read_bytes() for suffix in formats
        ), REDRAW


@pytest.mark.slow
@each_store
def test_no_figure_is_kept_without_results(store: str) -> None:
    slugs = {drawing.slug for comparison in compared(store) for drawing in drawings(comparison)}
    slugs |= {
        drawing.slug
        for drawing in [
            *speed_drawings(kept(store)[SPEED], compared(store)),
            *bench_drawings(benched(kept(store))),
        ]
    }
    wanted = {f"{slug}.{suffix}" for slug in slugs for suffix in ("txt", *USUAL)}
    assert [path.name for path in (STORES[store] / "figures").iterdir() if path.name not in wanted] == [], (
        REDRAW
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_picture_that_is_shown_is_there(page: Path) -> None:
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [name for name in shown if not (page.parent / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_that_is_shown_is_a_kept_one(page: Path) -> None:
    for name, table in re.findall(
        r"<!-- (results/\S+\.md) -->\n((?:\|.*\n)+)", page.read_text(encoding="utf-8")
    ):
        assert (ROOT / name).read_text(encoding="utf-8").split("\n\n")[1] == table.rstrip("\n"), (
            f"{page.name} does not show {name}"
        )


def cpu_pages() -> str:
    """The README and the guide, which show the results of the CPU."""
    return "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/usage.md"))


def test_the_readme_and_the_guide_show_tables_and_pictures_of_every_result_of_the_cpu() -> None:
    text = cpu_pages()
    for comparison in compared("cpu"):
        assert f"<!-- results/cpu/tables/{comparison.slug}.md -->\n| model" in text
        assert f"results/cpu/figures/{comparison.slug}-" in text


def test_the_numbers_of_these_tables_are_those_of_the_kept_results_by_todays_chance() -> None:
    """Worked out from the files alone: the mean over seeds, and how far it lies above the chance that the
    task has now."""
    text = cpu_pages()
    for comparison in compared("cpu"):
        (shown,) = re.findall(rf"<!-- results/cpu/tables/{comparison.slug}.md -->\n((?:\|.*\n)+)", text)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines()]
        names, told = rows[0], {row[0]: row for row in rows[2:]}
        cls = registry("task").find(comparison.task).cls
        for row in comparison.rows:
            files = [
                json.loads((STORES["cpu"] / f"{result['id']}.json").read_text(encoding="utf-8"))
                for result in row.results
            ]
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
    stored, path = Stored(below(Path("results"))), Path("docs/claims.md")
    verdicts = [verdict(claim, stored) for claim in claims().values()]
    assert path.read_text(encoding="utf-8") == page(
        verdicts, stored, command="linbench claims --save docs/claims.md", beside=path
    )
    drawn = [drawing for found in verdicts for drawing in claim_drawings(found)]
    assert_kept(drawn, pictures(path), ["png"])
    assert sorted(one.name for one in pictures(path).iterdir()) == sorted(
        f"{one.slug}.{suffix}" for one in drawn for suffix in ("png", "txt")
    )


def test_hard_tells_the_four_models_apart() -> None:
    """In the mean every model is a twentieth from the next; the sum is below, and softmax above, every seed
    of all others."""
    (hard,) = (found for found in compared("cpu") if found.slug == "mqar-quick-hard-controlled")
    ranked = sorted(hard.rows, key=lambda row: row.mean or 0.0)
    assert [row.label for row in ranked] == ["linear_attention", "gated_deltanet", "deltanet", "attention"]
    assert all(len(row.accuracies) == 3 for row in ranked)
    for lower, higher in itertools.pairwise(ranked):
        assert higher.mean - lower.mean >= 0.05, f"{lower.label} and {higher.label} are too close"
    assert max(ranked[0].accuracies) < min(value for row in ranked[1:] for value in row.accuracies)
    assert min(ranked[-1].accuracies) > max(value for row in ranked[:-1] for value in row.accuracies)

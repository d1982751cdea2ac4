"""The tables in the repository and in the README say what the stored results say."""

import itertools
from pathlib import Path

import pytest

from linbench.report.tables import markdown
from linbench.results import comparisons
from linbench.store import Store

ROOT = Path(__file__).parents[2]
STORES = {name: ROOT / "results" / name for name in ("cpu", "h200")}
KEPT = {(name, comparison.slug): comparison for name, folder in STORES.items() for comparison in comparisons(Store(folder).all())}
each = pytest.mark.parametrize(("store", "slug"), KEPT, ids="/".join)


def test_there_are_reference_results() -> None:
    assert {slug for store, slug in KEPT if store == "cpu"} == {"mqar-quick-native", "mqar-quick-hard-controlled", "variable_overwrite-quick-controlled"}
    assert {comparison.task for (store, _), comparison in KEPT.items() if store == "h200"} == {"mqar", "variable_overwrite", "parity"}


@each
def test_they_are_of_committed_code_and_one_kind_of_device(store: str, slug: str) -> None:
    results = KEPT[store, slug].results
    assert all(result["environment"]["commit"] and result["environment"]["dirty"] is False for result in results)
    assert {result["cell"]["device"] for result in results} == {{"cpu": "cpu", "h200": "NVIDIA H200"}[store]}


@each
def test_kept_tables_are_those_of_the_kept_results(store: str, slug: str) -> None:
    kept = (STORES[store] / "tables" / f"{slug}.md").read_text(encoding="utf-8")
    assert kept == markdown(KEPT[store, slug])
    first = kept.split("\n\n")[1]
    assert first.startswith("| model")
    if store == "cpu":
        assert first in (ROOT / "README.md").read_text(encoding="utf-8")


@each
def test_kept_figures_were_drawn_from_the_kept_results(store: str, slug: str) -> None:
    from linbench.cell import digest

    drawn_from = digest(sorted(result["id"] for result in KEPT[store, slug].results))
    figures = sorted((STORES[store] / "figures").glob(f"{slug}-*.txt"))
    assert f"{slug}-learning-curves.txt" in [path.name for path in figures]
    for path in figures:
        assert drawn_from in path.read_text(encoding="utf-8")
        assert drawn_from in path.with_suffix(".svg").read_text(encoding="utf-8")
        assert drawn_from.encode() in path.with_suffix(".png").read_bytes()


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

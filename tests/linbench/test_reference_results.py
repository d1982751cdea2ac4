"""The tables in the repository and in the README say what the stored results say."""

import itertools
from pathlib import Path

import pytest

from linbench.report.tables import markdown
from linbench.results import Comparison, comparisons
from linbench.store import Store

ROOT = Path(__file__).parents[2]
KEPT = comparisons(Store(ROOT / "results" / "cpu").all())


def test_there_are_reference_results_from_committed_code() -> None:
    assert {comparison.slug for comparison in KEPT} == {"mqar-quick-native", "mqar-quick-hard-controlled", "variable_overwrite-quick-controlled"}
    environments = [result["environment"] for comparison in KEPT for result in comparison.results]
    assert all(found["commit"] and found["dirty"] is False for found in environments)


@pytest.mark.parametrize("comparison", KEPT, ids=lambda comparison: comparison.slug)
def test_kept_tables_are_those_of_the_kept_results(comparison: Comparison) -> None:
    kept = (ROOT / "results" / "cpu" / "tables" / f"{comparison.slug}.md").read_text(encoding="utf-8")
    assert kept == markdown(comparison)
    first = kept.split("\n\n")[1]
    assert first.startswith("| model")
    assert first in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("comparison", KEPT, ids=lambda comparison: comparison.slug)
def test_kept_figures_were_drawn_from_the_kept_results(comparison: Comparison) -> None:
    from linbench.cell import digest

    drawn_from = digest(sorted(result["id"] for result in comparison.results))
    for name in ("learning-curves", "overwrites" if comparison.task == "variable_overwrite" else "distance"):
        stem = ROOT / "results" / "cpu" / "figures" / f"{comparison.slug}-{name}"
        assert drawn_from in stem.with_suffix(".svg").read_text(encoding="utf-8")
        assert drawn_from in stem.with_suffix(".txt").read_text(encoding="utf-8")
        assert drawn_from.encode() in stem.with_suffix(".png").read_bytes()


def test_hard_tells_the_four_models_apart() -> None:
    """In the mean every model is a twentieth from the next; the sum is below, and softmax above, every seed of all others."""
    (hard,) = (comparison for comparison in KEPT if comparison.preset == "quick-hard")
    ranked = sorted(hard.rows, key=lambda row: row.mean or 0.0)
    assert [row.label for row in ranked] == ["linear_attention", "gated_deltanet", "deltanet", "attention"]
    assert all(len(row.accuracies) == 3 for row in ranked)
    for lower, higher in itertools.pairwise(ranked):
        assert higher.mean - lower.mean >= 0.05, f"{lower.label} and {higher.label} are too close"
    assert max(ranked[0].accuracies) < min(value for row in ranked[1:] for value in row.accuracies)
    assert min(ranked[-1].accuracies) > max(value for row in ranked[:-1] for value in row.accuracies)

"""The figures in the README's sentences are those of the stored results and of today's tasks."""

import pytest

from linbench.experiments.registry import registry
from tests.results.drawn import ROOT, compared

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_chance_level_beside_the_table_is_todays() -> None:
    (shown,) = (one for one in compared("cpu") if one.task == "variable_overwrite")
    cls = registry("task").find(shown.task).cls
    settings = shown.rows[0].results[0]["cell"]["task"]["settings"]
    chance = f"{cls(cls.Settings.parse(settings, where='task')).chance():.3f}".lstrip("0")
    assert f"right with {chance} (chance)" in README.replace("\n", " ")


@pytest.mark.slow
def test_the_budget_of_the_recall_tables_is_that_of_the_stored_runs() -> None:
    controlled = [one for one in compared("h200") if one.task == "mqar" and "controlled" in one.slug]
    tokens = {
        result["cell"]["protocol"]["settings"]["tokens"] for one in controlled for result in one.results
    }
    (millions,) = {count // 1_000_000 for count in tokens}
    assert millions == 12
    assert f"{millions} million tokens of training" in README

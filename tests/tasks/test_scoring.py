"""Chance of every preset is pinned to the task's version and scoring: who changes it must raise one of them,
and older results follow."""

import json
from pathlib import Path

import pytest

from linbench.experiments.registry import SHIPPED, registry

PINNED: dict[str, dict[str, dict[str, float]]] = json.loads(
    Path(__file__).with_name("chance.json").read_text()
)
TASKS = {name: entry.cls for name, entry in registry("task").entries.items() if entry.source == SHIPPED}

SLOW = {
    "brevo",
    "compositional_mqar",
    "depo",
    "forgetting_mqar",
    "fuzzy_recall",
    "lano",
    "mqar",
    "object_locations",
    "stack",
}
"""Tasks whose chance takes half a second for all presets together."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TASKS]
)
def test_chance_changes_with_scoring_alone(name: str) -> None:
    cls = TASKS[name]
    scored = f"{cls.version}.{cls.scoring}"
    assert scored in PINNED[name], (
        "pin the chance of every preset under the new version and scoring, beside those before"
    )
    levels = {
        preset: cls(cls.Settings.parse(its.task, where="task")).chance()
        for preset, its in cls.presets.items()
    }
    assert levels == pytest.approx(PINNED[name][scored], rel=1e-5), (
        "raise `scoring`, and pin the new levels under it: stored results hold the old ones"
    )


def test_no_task_is_pinned_that_is_gone() -> None:
    assert PINNED.keys() == TASKS.keys()

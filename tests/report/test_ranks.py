"""The table and the figure of ranks over tasks."""

from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.figures.ranks import FIGURE
from linbench.report.tables.ranks import rank_tables

Make = Callable[..., Any]
SCORES = {
    "linear_attention": (0.1, 0.2, 0.3),
    "gla": (0.2, 0.3, 0.2),
    "deltanet": (0.3, 0.5, 0.4),
    "kda": (0.4, 0.4, 0.5),
    "<b>mine</b>": (0.4, 0.6, 0.6),
}


def results(make: Make, *, tasks: int) -> list[Any]:
    """Results of several tasks; the first has another cell, where all models are equal."""
    found = []
    for label, scores in SCORES.items():
        for place, score in enumerate(scores[:tasks]):
            for pairs, own in ((8, score), *([(16, 0.5)] if place == 0 else [])):
                one = make(label, 0, own, kv_pairs=pairs)
                one["cell"]["task"] = one["cell"]["task"] | {"name": f"task {place}"}
                found.append(one | {"id": f"{label} {place} {pairs}"})
    return found


def test_models_stand_by_their_mean_rank(a_result: Make, snapshot: SnapshotAssertion) -> None:
    (table,) = rank_tables(ReportData(results(a_result, tasks=3)))
    assert (table.body(), table.caption) == snapshot
    assert [record["model"] for record in table.to_records()] == list(SCORES)[::-1]


@pytest.mark.parametrize("tasks", [1, 2])
def test_few_tasks_have_no_mean(a_result: Make, tasks: int) -> None:
    assert not rank_tables(ReportData(results(a_result, tasks=tasks)))


def test_a_figure_has_the_ranks_and_how_far_tasks_agree(a_result: Make) -> None:
    (drawing,) = FIGURE.drawings(ReportData(results(a_result, tasks=3)))
    picture = drawing.pictures(["svg"])["svg"].decode()
    assert "0.74" in picture
    assert "&lt;b&gt;mine" in picture

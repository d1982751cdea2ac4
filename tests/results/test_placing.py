"""The place of one model among those that were asked the same."""

from collections.abc import Callable

import pytest

from linbench.report.tables.placing import placing_table
from linbench.results.comparison import comparisons
from linbench.results.placing import overall, placings
from linbench.results.schema.cells import CellResult
from tests.helpers.site import trained

Make = Callable[..., CellResult]

MODELS = {"mine": 0.8, "a": 0.9, "b": 0.7, "c": 0.6, "d": 0.5, "e": 0.4}
TASKS = ("mqar", "needle", "copy")


def asked(make: Make, *tasks: str, but: dict[str, str] | None = None) -> list[CellResult]:
    return [
        trained(make, label, seed, score + seed / 1000, task)  # type: ignore[misc]
        for task in tasks
        for label, score in MODELS.items()
        for seed in range(5)
        if (but or {}).get(label) != task
    ]


def test_a_model_has_a_rank_in_each_task_and_over_all(a_result: Make) -> None:
    alike = comparisons(asked(a_result, *TASKS))
    found = placings(alike, "mine")
    assert [(*one.ranks, one.of) for one in found] == [(2, 2, 6)] * 3
    place = overall(alike, "mine")
    assert place is not None
    assert (place.place, place.of, place.mean, place.tasks) == (2, 6, 2.0, 3)


def test_tasks_without_the_model_do_not_count(a_result: Make) -> None:
    alike = comparisons([*asked(a_result, *TASKS), *asked(a_result, "parity", but={"mine": "parity"})])
    place = overall(alike, "mine")
    assert place is not None
    assert place.tasks == 3
    assert {one.facet.comparison.task for one in placings(alike, "mine") if one.facet.comparison} == {*TASKS}


def test_a_model_alone_has_no_place(a_result: Make) -> None:
    alike = comparisons([one for one in asked(a_result, "mqar") if one["label"] == "mine"])
    assert placings(alike, "mine") == []
    assert overall(alike, "mine") is None


@pytest.mark.parametrize(
    ("tasks", "words"), [(TASKS, "place 2 of the 6 models"), (TASKS[:1], "no place over all")]
)
def test_the_table_says_the_place(tasks: tuple[str, ...], words: str, a_result: Make) -> None:
    alike = comparisons(asked(a_result, *tasks))
    table = placing_table(placings(alike, "mine"), overall(alike, "mine"), "mine")
    assert len(table.rows) == len(tasks)
    assert words in table.caption
    assert all(row[-2].startswith("a: 0.9") for row in table.texts)

"""Switches of the set-up: what they change, and how much of a gap that explains."""

from typing import Any

import pytest

from linbench.common.errors import UserError
from linbench.experiments.cell import Cell
from linbench.reproduction.attribution import attributions
from linbench.reproduction.outcome import outcomes
from linbench.reproduction.table import cells_of, reproductions
from tests.helpers.claims import a_result
from tests.helpers.published import small_table


def conv_of(cell: Cell) -> Any:
    return cell.model.layers[0].settings.model_dump()["conv"]


def test_a_switch_changes_what_it_says_and_nothing_else() -> None:
    table = small_table()
    before, after = cells_of(table.runs()), cells_of(table.switched("no convolution").runs())
    assert {conv_of(cell) for cell in before} == {4}
    assert {conv_of(cell) for cell in after} == {0}
    assert [(cell.protocol, cell.seed, cell.task.settings) for cell in before] == [
        (cell.protocol, cell.seed, cell.task.settings) for cell in after
    ]


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ({"set": {"protocol.lr": 0.1}}, {0.1}),
        ({"grid": {"protocol.lr": [0.1, 0.2]}}, {0.1, 0.2}),
    ],
)
def test_a_switch_may_fix_or_change_what_is_chosen_among(
    switch: dict[str, Any], expected: set[float]
) -> None:
    table = small_table(switches={"other": {"expects": "up", **switch}})
    assert {cell.protocol.lr for cell in cells_of(table.switched("other").runs())} == expected


def test_a_switch_may_change_a_rows_model_and_its_own_settings() -> None:
    rows = {"a": {"model": "deltanet", "set": {"model.conv": 2}, "values": [1]}, "linear_attention": [2]}
    switches = {
        "set": {"expects": "up", "set": {"model.conv": 3}},
        "model": {"expects": "up", "rows": ["a"], "models": {"a": "gla"}},
    }
    table = small_table(rows=rows, switches=switches)
    assert {conv_of(cell) for cell in cells_of(table.switched("set").runs())} == {3}
    assert {cell.model.label for cell in cells_of(table.switched("model").runs())} == {"gla"}


def test_the_share_of_a_gap_is_what_the_mean_moves_towards_the_printed_number() -> None:
    def find(cell: Cell) -> Any:
        score = {4: (0.5, 0.6), 0: (0.7, 0.7)}[conv_of(cell)][cell.seed]
        return a_result(cell, score, "cpu")

    table = small_table()
    (found,) = attributions(table, outcomes(table, table.runs(), find), find)
    assert found.before.seeds == pytest.approx((50, 60))
    assert found.change is not None
    assert found.change.mean == pytest.approx(15)
    assert found.change.low < 15 < found.change.high
    assert found.explained == pytest.approx(15 / 35)
    near = small_table(rows={"deltanet": [60]})
    assert attributions(near, outcomes(near, near.runs(), find), find)[0].explained is None, "there is no gap"


def test_what_has_not_run_has_no_change() -> None:
    table = small_table()
    (found,) = attributions(table, outcomes(table, table.runs(), lambda cell: None), lambda cell: None)
    assert (found.change, found.explained, found.after.left) == (None, None, 4)


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ({"rows": ["gla"], "set": {"model.conv": 0}}, "row gla"),
        ({"columns": ["long"], "set": {"model.conv": 0}}, "column long"),
        ({}, "changes nothing"),
    ],
)
def test_a_switch_of_what_is_not_there_is_refused(switch: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        small_table(switches={"wrong": {"expects": "up", **switch}})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, one in reproductions().items() if one.table.switches])
def test_every_switch_that_is_shipped_can_run(name: str) -> None:
    one = reproductions()[name]
    for switch in one.table.switches:
        assert cells_of(one.switched(switch).runs()), switch

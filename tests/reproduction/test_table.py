"""Published tables that come with linbench, and how a table is read."""

import pytest

from linbench.common.errors import UserError
from linbench.reproduction.table import cells_of, find, reproductions
from tests.helpers.published import SMALL, small_table


def test_tables_are_in_the_order_of_their_numbers() -> None:
    numbers = [one.number for one in reproductions().values()]
    assert numbers == sorted(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("name", reproductions())
def test_every_row_that_needs_nothing_can_run(name: str) -> None:
    one = reproductions()[name]
    runs = one.runs()
    assert {(cell.row, cell.column) for cell in one.printed if one.needs(cell) is None} == set(runs)
    assert all(seeds for settings in runs.values() for seeds in settings)


def test_a_value_has_the_runs_of_its_grid_and_seeds() -> None:
    runs = small_table().runs()
    assert list(runs) == [("deltanet", "short")]
    assert [[(cell.protocol.lr, cell.seed) for cell in seeds] for seeds in runs["deltanet", "short"]] == [
        [(0.001, 0), (0.001, 1)],
        [(0.01, 0), (0.01, 1)],
    ]
    assert len(cells_of(small_table().runs())) == 4


def test_columns_of_one_task_share_their_runs() -> None:
    column = {**SMALL["columns"]["short"], "test": [{"kv_pairs": 1}, {"kv_pairs": 2}]}
    columns = {"first": {**column, "of": 0}, "second": {**column, "of": 1}}
    assert len(cells_of(small_table(columns=columns, rows={"deltanet": [1, 2]}).runs())) == 4


def test_values_that_are_not_printed_are_not_run() -> None:
    rows = {"deltanet": [None], "linear_attention": [3]}
    assert list(small_table(rows=rows).runs()) == [("linear_attention", "short")]


def test_a_part_has_the_runs_of_its_rows_and_columns_alone() -> None:
    columns = dict.fromkeys(("short", "shorter", "long"), SMALL["columns"]["short"])
    rows = {"deltanet": [1, 2, 3], "rwkv7": [4, 5, 6], "gla[conv=2]": [7, None, 9]}
    table = small_table(columns=columns, rows=rows, set={**SMALL["set"], "model.rwkv7.heads": 2})

    def values(*asked: list[str]) -> list[str]:
        part = table.part(*asked)
        assert {(cell.row, cell.column) for cell in part.printed} == set(part.runs())
        return [cell.printed.text for cell in part.printed]

    assert values([], ["short*"]) == ["1", "2", "4", "5", "7"]
    assert values(["gla[conv=2]", "delta*"], ["long"]) == ["3", "9"]
    assert values(["deltanet"], []) == ["1", "2", "3"]
    assert values([], []) == [cell.printed.text for cell in table.printed]
    switched = table.part(["deltanet"], ["long"]).switched("no convolution")
    assert [(cell.row, cell.column) for cell in switched.printed] == [("deltanet", "long")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": {"deltanet": [1, 2]}}, "2 values for 1 columns"),
        ({"rows": {"deltanet": ["about 3"]}}, "a value is a number"),
        ({"trust": "hearsay"}, "trust"),
        ({"selects": "best"}, "selects"),
    ],
)
def test_a_table_that_is_wrong_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        small_table(**changes)


def test_a_row_of_what_is_not_installed_is_refused() -> None:
    with pytest.raises(UserError, match="no_such"):
        small_table(rows={"no_such": [1]}).runs()


def test_a_table_is_found_in_either_case() -> None:
    assert find("r9") is find("R9")
    with pytest.raises(UserError, match="R99"):
        find("R99")

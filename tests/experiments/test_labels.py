from typing import Any

from syrupy.assertion import SnapshotAssertion

from linbench.experiments.cell import Cell
from linbench.experiments.labels import (
    distinguishing_labels,
    distinguishing_settings,
    format_cells,
    naming_scheme,
)
from tests.helpers.cells import plan


def test_what_is_the_same_in_all_is_not_told(snapshot: SnapshotAssertion) -> None:
    every = [
        {"seq_len": 64, "kv_pairs": 8, "filler": "zero"},
        {"seq_len": 64, "kv_pairs": 4, "filler": "random"},
    ]
    assert distinguishing_labels(every) == snapshot
    assert distinguishing_labels(every[:1]) == [""]


def test_mixtures_and_tests_tell_cells_apart(snapshot: SnapshotAssertion) -> None:
    def mixed(examples: int, **more: Any) -> Any:
        train = [{"seq_len": 32, "examples": examples}, {"examples": 50}]
        return plan("mqar", ["deltanet"], device="cpu", settings={"protocol.epochs": 2}, train=train, **more)[
            0
        ]

    cells = [mixed(40), mixed(50), mixed(50, test=[{"kv_pairs": 4}])]
    names = naming_scheme(cells)
    assert names == (frozenset(), ("protocol.examples", "task.test", "seed"))
    assert format_cells(cells[2:], names) == snapshot
    assert naming_scheme([mixed(40), mixed(40)]) == (frozenset(), ("seed",))
    same = [
        mixed(40),
        plan("mqar", ["deltanet"], device="cpu", settings={"protocol.epochs": 2}, train=[{"examples": 90}])[
            0
        ],
    ]
    assert format_cells(same[:1], naming_scheme(same)) == snapshot


def one(task: str = "mqar", preset: str | None = None, **settings: Any) -> Cell:
    return plan(
        task,
        ["deltanet"],
        preset=preset,
        device="cpu",
        settings={name.replace("__", "."): value for name, value in settings.items()},
    )[0]


def test_a_preset_is_named_where_every_cell_of_its_task_is_one(snapshot: SnapshotAssertion) -> None:
    cells = [one(), one("group_word", "quick"), one("group_word", "quick-swaps")]
    names = naming_scheme(cells)
    assert names == (frozenset({"mqar", "group_word"}), ("seed",))
    assert [format_cells([cell], names) for cell in cells] == snapshot


def test_cells_of_a_sweep_over_settings_are_all_named_by_them(snapshot: SnapshotAssertion) -> None:
    """One of them is the preset as it stands, which would say nothing of the others."""
    cells = [*(one(task__kv_pairs=pairs) for pairs in (4, 8, 16)), one("group_word")]
    names = naming_scheme(cells)
    assert [cell.preset for cell in cells] == [None, "quick", None, "quick"]
    assert [format_cells([cell], names) for cell in cells] == snapshot


def test_what_other_settings_tell_already_is_not_told() -> None:
    longer = [
        one(task__seq_len=length, task__kv_pairs=length // 8, model__d_model=width)
        for length in (64, 128)
        for width in (32, 64)
    ]
    assert naming_scheme(longer).settings == ("task.seq_len", "model.d_model", "seed")
    assert naming_scheme(longer, but={"model.d_model"}).settings == ("task.seq_len", "seed")
    assert distinguishing_settings(
        [[{"a": 1, "b": 1}, {"a": 2, "b": 2}], [{"a": 1, "b": 1}, {"a": 1, "b": 2}], []]
    ) == [
        "a",
        "b",
    ]
    assert distinguishing_settings([[{"a": 1}, {"b": 1}, {"a": 1, "b": 1}]]) == ["a", "b"]


def test_the_form_is_one_word_in_place_of_the_settings_that_follow_from_it(
    snapshot: SnapshotAssertion,
) -> None:
    cells = [
        plan("mqar", ["gated_deltanet"], device="cpu", form=form)[0] for form in ("native", "controlled")
    ]
    names = naming_scheme(cells)
    assert names.settings == ("form", "seed")
    assert format_cells(cells[1:], names) == snapshot

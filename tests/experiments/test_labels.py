from typing import Any

from syrupy.assertion import SnapshotAssertion

from linbench.experiments.cell import Cell
from linbench.experiments.labels import (
    Naming,
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
    assert names == (frozenset(), {"mqar": ("protocol.examples", "task.test", "seed")})
    assert format_cells(cells[2:], names) == snapshot
    assert naming_scheme([mixed(40), mixed(40)]) == (frozenset(), {"mqar": ("seed",)})
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
    assert names == (frozenset({"mqar", "group_word"}), dict.fromkeys(("mqar", "group_word"), ("seed",)))
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
    both, one_of_them = naming_scheme(longer), naming_scheme(longer, but={"model.d_model"})
    assert both.settings["mqar"] == ("task.seq_len", "model.d_model", "seed")
    assert one_of_them.settings["mqar"] == ("task.seq_len", "seed")
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
    assert names.settings["mqar"] == ("form", "seed")
    assert format_cells(cells[1:], names) == snapshot


def test_cells_that_come_bit_by_bit_are_named_as_when_all_are_known() -> None:
    cells = [
        *(one(task__kv_pairs=pairs, protocol__lr=lr) for pairs in (4, 8) for lr in (0.001, 0.003)),
        one("group_word", "quick"),
        one("group_word", "quick-swaps"),
        one("group_word", task__group="S3"),
        *(plan("mqar", ["gla"], device="cpu", form=form)[0] for form in ("native", "controlled")),
    ]
    naming = Naming()
    for count, cell in enumerate(cells, start=1):
        naming.add([cell])
        assert naming.names == naming_scheme(cells[:count])
    assert naming.names.settings["mqar"] == ("form", "task.kv_pairs", "protocol.lr", "seed")


def test_a_task_is_named_by_its_own_differences_and_by_its_mixture_last() -> None:
    lengths = [{"seq_len": 32, "examples": 40}, {"seq_len": 64, "examples": 40}]
    settings = {"protocol.epochs": 2}
    mixed = [
        plan("mqar", ["deltanet"], device="cpu", settings=settings | more, train=lengths[:count])[0]
        for count, more in ((1, {"model.d_model": 32}), (2, {"model.d_model": 64}))
    ]
    found = naming_scheme([*mixed, one("group_word", "quick")])
    assert found.settings == {"mqar": ("model.d_model", "seed"), "group_word": ("seed",)}

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.experiments.suite import Suite, blocks
from linbench.report.tables.side_by_side import table as table_of
from linbench.results.side_by_side import VariantComparison, block_titles, compare_variants
from linbench.results.speeds import speeds
from tests.helpers.speeds import a_speed, layer_of

TINY = {
    "task.seq_len": 16,
    "task.kv_pairs": 2,
    "task.vocab_size": 16,
    "model.d_model": 16,
    "model.heads": 2,
    "model.layers": 1,
}


def tiny(models: Sequence[Any], **more: Any) -> Suite:
    return Suite.parse(
        {"about": "a test", "tasks": ["mqar"], "models": models, "seeds": "0-5", "set": TINY} | more,
        where="suite",
    )


@pytest.fixture
def tables(a_result: Callable[..., Any]) -> Callable[..., list[VariantComparison]]:
    """Return a function that makes tables of models: (label, score about which seeds lie, more fields)."""

    def make(*models: Any, measured: Sequence[Any] = (), **suite: Any) -> list[VariantComparison]:
        found, missing = blocks(tiny([name for name, *_ in models], **suite), device="cpu")
        assert missing == {}
        results = {}
        for block in found:
            for (_, score, more), (_, cells) in zip(models, block.rows, strict=True):
                for i, cell in enumerate(cells):
                    said = {name: value(i) if callable(value) else value for name, value in more.items()}
                    result = a_result(cell.model.label, cell.seed, score + 0.01 * (i % 3), **said)
                    results[cell.id] = result | {"cell": cell.identity, "preset": cell.preset}
        layers = {result["label"]: layer_of(result) for result in results.values()}
        known = [
            a_speed(label, seconds=seconds, bench={"layer": layers[label], **more.pop("bench", {})}, **more)
            for label, seconds, more in measured
        ]
        return compare_variants(found, results, speeds(known))

    return make


def verdicts(table: VariantComparison) -> list[str]:
    """Return the words of the column `verdict`, without the further seeds."""
    at = table_of(table).names.index("verdict")
    return [row[at].partition(";")[0] for row in table_of(table).texts]


def test_all_stand_beside_the_first(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}), ("retnet", 0.4, {}), ("comba", 0.605, {}))
    assert (table.form, table.first) == ("native", "deltanet")
    assert [line.row.label for line in table.lines] == ["deltanet", "gla", "retnet", "comba"]
    assert verdicts(table) == ["compared with", "better", "worse", "no difference shown"]
    assert table.lines[0].difference is None
    assert table.lines[1].difference.mean == pytest.approx(0.2)


def test_all_verdicts_of_a_command_are_counted(tables: Callable[..., Any]) -> None:
    """A difference that is significant alone is not significant among many, of whatever form."""
    (alone,) = tables(("deltanet", 0.6, {}), ("gla", 0.6125, {}))
    assert verdicts(alone)[1] == "better"
    others = ["retnet", "comba", "kda", "mamba2", "rwkv6", "rwkv7", "lightning"]
    (many,) = tables(("deltanet", 0.6, {}), ("gla", 0.6125, {}), *((name, 0.6, {}) for name in others))
    assert verdicts(many)[1:] == ["no difference shown"] * 8
    assert many.lines[1].verdict.p == pytest.approx(8 * alone.lines[1].verdict.p)
    forms = tables(
        ("deltanet", 0.6, {}), ("gla", 0.6125, {}), tasks=["mqar/quick", "mqar/quick-hard"], set={}
    )
    assert [table.tests for table in forms] == [2, 2]
    assert forms[0].lines[1].verdict.p == pytest.approx(2 * alone.lines[1].verdict.p)


def test_what_has_no_verdict_does_not_count(tables: Callable[..., Any]) -> None:
    (table,) = tables(
        ("deltanet", 0.6, {}),
        ("gla", 0.6125, {}),
        *((name, 0.6, {"marks": ["non-causal"]}) for name in ("retnet", "comba", "kda", "mamba2", "rwkv6")),
    )
    assert verdicts(table)[1] == "better"
    assert table.tests == 1
    assert [line.verdict for line in table.lines][2:] == [None] * 5


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"recurrent": 106}, id="more state"),
        pytest.param({"recurrent": 95}, id="less state"),
        pytest.param({"parameters": 1060}, id="more parameters"),
        pytest.param({"cache": 1}, id="a growing state"),
        pytest.param(
            {"model": {"parameters": 1060, "state": None}}, id="more parameters and an undeclared state"
        ),
        pytest.param({"marks": lambda i: ["undertrained"] if i < 2 else []}, id="undertrained"),
        pytest.param({"marks": ["lr_edge"]}, id="lr_edge"),
        pytest.param({"recurrent": 104, "parameters": 1050}, id="comparable"),
        pytest.param({"convolution": 50}, id="matched by recurrences"),
    ],
)
def test_marks_and_sizes_stand_beside_a_verdict_and_take_none_away(
    tables: Callable[..., Any], more: Any, snapshot: SnapshotAssertion
) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, more))
    assert verdicts(table)[1] == "better"
    assert table.lines[1].remarks == snapshot
    (turned,) = tables(("gla", 0.8, more), ("deltanet", 0.6, {}))
    assert verdicts(turned)[1] == "worse"
    assert len(turned.lines[1].remarks) == len(table.lines[1].remarks)


def test_what_failed_is_not_compared(tables: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {"status": lambda i: "failed" if i == 3 else "ok"}))
    assert verdicts(table)[1] == snapshot
    assert table.lines[1].difference is not None, "the numbers stand there all the same"


def test_a_state_that_is_undeclared_is_said_beside_the_verdict(
    tables: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    plain_module = {"model": {"parameters": 1000, "state": None}}
    (table,) = tables(
        ("deltanet", 0.6, {}), ("gla", 0.8, plain_module), ("kda", 0.8, {}), ("retnet", 0.6, plain_module)
    )
    assert [line.remarks for line in table.lines[1:]] == snapshot(name="beside a declared state")
    (turned,) = tables(("gla", 0.8, plain_module), ("deltanet", 0.6, {}), ("retnet", 0.6, plain_module))
    assert [line.remarks for line in turned.lines[1:]] == snapshot(name="beside an undeclared state")
    (declared,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}))
    captions = [table_of(each).caption for each in (table, turned, declared)]
    assert ["at equal parameters" in caption for caption in captions] == [True, True, False]


def test_two_growing_states_are_compared_at_the_tested_length(tables: Callable[..., Any]) -> None:
    (table,) = tables(("attention", 0.6, {"cache": 1000}), ("fox", 0.8, {"cache": 1010}))
    assert verdicts(table)[1] == "better"


def test_one_seed_shows_nothing_and_the_seeds_that_are_lacking_are_told(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}), seeds="3")
    assert table.lines[1].difference is None
    assert verdicts(table)[1] == "no difference shown"
    assert table.lines[1].verdict.further == 3


def test_diverged_seeds_count_as_chance(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.6, {"status": "diverged"}))
    assert table.lines[1].row.mean == 0.125
    assert verdicts(table)[1] == "worse"


def test_a_win_over_who_is_below_chance_says_that_seeds_diverged(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.05, {}), ("gla", 0.6, {"status": "diverged"}))
    assert verdicts(table)[1] == "better"
    assert table.lines[1].remarks == ("gla diverged 6/6",)


def laddered(tokens: Sequence[int | None], **more: Any) -> dict[str, Any]:
    """Return fields of results that learned after so many million tokens; None: at the cap, never."""

    def curve(i: int) -> list[dict[str, Any]]:
        looks = range(1, 9)
        return [
            {"step": at, "tokens": at * 1_000_000, "accuracy": _reached(tokens[i], at), "nll": 1.0}
            for at in looks
        ]

    rungs = [{"tokens": 8_000_000, "accuracy": None}]
    ladder = {"ended": "cap", "most": 6, "rungs": rungs}
    return {"curve": curve, "ladder": lambda i: ladder, **more}


def _reached(when: int | None, at: int) -> float:
    return 1.0 if when is not None and at >= when else 0.2


def test_ladders_are_compared_in_tokens_to_learn_too(tables: Callable[..., Any]) -> None:
    (table,) = tables(
        ("deltanet", 0.6, laddered([1, 1, 2, 2, 1, 2])),
        ("gla", 0.6, laddered([6, 7, 8, None, 6, 7])),
        ("kda", 0.6, laddered([1, 2, 1, 2, 2, 1])),
    )
    assert table.converged
    assert table.tests == 4
    assert [line.learning_verdict and line.learning_verdict.outcome for line in table.lines] == [
        None,
        "later",
        "no difference shown",
    ]
    shown = table_of(table)
    at = shown.names.index("learned")
    assert [row[at : at + 2] for row in shown.texts] == [
        ["6 of 6", "1.00 M"],
        ["5 of 6", "7.00 M"],
        ["6 of 6", "1.00 M"],
    ]
    record = shown.to_json()["rows"][1]["learning"]
    assert (record["learned"], record["verdict"], record["median_tokens"]) == (5, "later", 7_000_000)
    (turned,) = tables(("gla", 0.6, laddered([6, 7, 8, None, 6, 7])), ("deltanet", 0.6, laddered([1] * 6)))
    assert turned.lines[1].learning_verdict.outcome == "sooner"


def test_a_fixed_budget_has_no_columns_on_learning(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}))
    assert not table.converged
    assert "learned" not in table_of(table).names


def test_forms_have_tables_of_their_own(tables: Callable[..., Any]) -> None:
    found = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}), tasks=["mqar/quick", "mqar/quick-hard"], set={})
    assert [table.form for table in found] == ["native", "controlled"]
    assert [[line.task for line in table.lines] for table in found] == [
        ["mqar quick"] * 2,
        ["mqar quick-hard"] * 2,
    ]


def test_a_model_that_is_trained_otherwise_is_not_comparable(
    tables: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    faster = {"model": "gla", "set": {"protocol.batch_size": 64}}
    (table,) = tables(("deltanet", 0.6, {}), (faster, 0.8, {}))
    assert verdicts(table)[1] == snapshot


def test_points_of_a_grid_are_compared_each_by_itself(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}), grid={"model.conv": [0, 4]})
    assert [line.task for line in table.lines] == ["mqar model.conv 0"] * 2 + ["mqar model.conv 4"] * 2
    assert verdicts(table) == ["compared with", "better"] * 2


def test_tasks_of_one_name_are_told_apart() -> None:
    longer = {"task": "mqar", "set": {"task.seq_len": 32}}
    found, _ = blocks(
        tiny(["deltanet"], tasks=["mqar", longer, {"task": "mqar", "test_lengths": "1x,2x"}]), device="cpu"
    )
    assert block_titles(found) == ["mqar", "mqar task.seq_len 32", "mqar test_lengths 1x,2x"]


def test_models_of_one_name_are_told_apart(tables: Callable[..., Any]) -> None:
    wide = {"model": "deltanet", "set": {"model.heads": 4}}
    (table,) = tables(("deltanet", 0.6, {}), (wide, 0.8, {}))
    assert [line.row.label for line in table.lines] == ["deltanet", "deltanet (model.heads 4)"]


def test_speeds_stand_beside_where_the_very_layers_were_measured(tables: Callable[..., Any]) -> None:
    measured = [("deltanet", 0.01, {}), ("gla", 0.02, {}), ("retnet", 0.02, {"marks": ["busy"]})]
    (table,) = tables(
        *((name, 0.6, {}) for name in ("deltanet", "gla", "retnet", "comba")), measured=measured
    )
    assert [column for column in table_of(table).names if "tokens/s" in column] == [
        "training, thousand tokens/s"
    ]
    at = table_of(table).names.index("training, thousand tokens/s")
    assert [row[at] for row in table_of(table).texts] == ["102 ± 10%", "51.2 ± 10%", "busy", "–"]
    assert "not of these runs" in table_of(table).caption
    way = table.speeds_of(table.lines[0], "train")
    assert "T 256" in way.full_description
    assert f"({way.full_description})" in table_of(table).caption
    first, *_, last = table_of(table).to_json()["rows"]
    assert first["tokens_per_second"]["train"]["median"] == pytest.approx(102_400)
    assert first["tokens_per_second"]["decode"] is last["tokens_per_second"]["train"] is None
    assert [line.row.label for line in table.unmeasured("train")] == ["comba"]
    assert [line.row.label for line in table.unmeasured("decode")] == ["deltanet", "gla", "retnet", "comba"]


def test_no_command_is_told_for_a_layer_that_failed(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.6, {"status": "failed"}))
    assert [line.row.label for line in table.unmeasured("train")] == ["deltanet"]


def test_no_speed_of_another_device_and_no_column_of_none(tables: Callable[..., Any]) -> None:
    (table,) = tables(
        ("deltanet", 0.6, {}), ("gla", 0.6, {}), measured=[("deltanet", 0.01, {"bench": {"device": "a GPU"}})]
    )
    assert not [column for column in table_of(table).names if "tokens/s" in column]
    assert "Speeds" not in table_of(table).caption
    assert len(table.unmeasured("train")) == 2

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
    return [line.verdict for line in table.lines]


def test_all_stand_beside_the_first(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}), ("retnet", 0.4, {}), ("comba", 0.605, {}))
    assert (table.form, table.first) == ("native", "deltanet")
    assert [line.row.label for line in table.lines] == ["deltanet", "gla", "retnet", "comba"]
    assert verdicts(table) == ["compared with", "better", "worse", "no difference shown"]
    assert table.lines[0].difference is None
    assert table.lines[1].difference.mean == pytest.approx(0.2)


def test_all_verdicts_of_a_table_are_counted(tables: Callable[..., Any]) -> None:
    """A difference that is significant alone is not significant among many."""
    (alone,) = tables(("deltanet", 0.6, {}), ("gla", 0.6125, {}))
    assert verdicts(alone)[1] == "better"
    others = ["retnet", "comba", "kda", "mamba2", "rwkv6", "rwkv7", "lightning"]
    (many,) = tables(("deltanet", 0.6, {}), ("gla", 0.6125, {}), *((name, 0.6, {}) for name in others))
    assert verdicts(many)[1:] == ["no difference shown"] * 8
    assert many.lines[1].p == pytest.approx(8 * alone.lines[1].p)


def test_what_has_no_verdict_does_not_count(tables: Callable[..., Any]) -> None:
    (table,) = tables(
        ("deltanet", 0.6, {}),
        ("gla", 0.6125, {}),
        *((name, 0.6, {"recurrent": 200}) for name in ("retnet", "comba", "kda", "mamba2", "rwkv6")),
    )
    assert verdicts(table)[1] == "better"
    assert [line.p for line in table.lines][2:] == [None] * 5


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
        pytest.param({"status": lambda i: "failed" if i == 3 else "ok"}, id="failed"),
        pytest.param({"recurrent": 104, "parameters": 1050}, id="comparable"),
    ],
)
def test_what_is_not_comparable_is_said(
    tables: Callable[..., Any], more: Any, snapshot: SnapshotAssertion
) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, more))
    verdict = table.lines[1].verdict
    assert verdict == snapshot
    assert table.lines[1].difference is not None, "the numbers stand there all the same"
    (turned,) = tables(("gla", 0.8, more), ("deltanet", 0.6, {}))
    assert turned.lines[1].verdict.partition(":")[0] == {"better": "worse"}.get(
        verdict, verdict.partition(":")[0]
    )


def test_a_state_that_is_undeclared_is_said_beside_the_verdict(
    tables: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    plain_module = {"model": {"parameters": 1000, "state": None}}
    (table,) = tables(
        ("deltanet", 0.6, {}), ("gla", 0.8, plain_module), ("kda", 0.8, {}), ("retnet", 0.6, plain_module)
    )
    assert verdicts(table)[1:] == snapshot(name="beside a declared state")
    (turned,) = tables(("gla", 0.8, plain_module), ("deltanet", 0.6, {}), ("retnet", 0.6, plain_module))
    assert verdicts(turned)[1:] == snapshot(name="beside an undeclared state")


def test_two_growing_states_are_compared_at_the_tested_length(tables: Callable[..., Any]) -> None:
    (table,) = tables(("attention", 0.6, {"cache": 1000}), ("fox", 0.8, {"cache": 1010}))
    assert verdicts(table)[1] == "better"


def test_one_seed_is_no_verdict(tables: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.8, {}), seeds="3")
    assert table.lines[1].difference is None
    assert verdicts(table)[1] == snapshot


def test_diverged_seeds_count_as_chance(tables: Callable[..., Any]) -> None:
    (table,) = tables(("deltanet", 0.6, {}), ("gla", 0.6, {"status": "diverged"}))
    assert table.lines[1].row.mean == 0.125
    assert verdicts(table)[1] == "worse"


def test_who_diverges_is_not_better_than_who_is_below_chance(
    tables: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    (table,) = tables(("deltanet", 0.05, {}), ("gla", 0.6, {"status": "diverged"}), ("kda", 0.04, {}))
    assert verdicts(table)[1] == snapshot(name="the second")
    (table,) = tables(("deltanet", 0.6, {"status": "diverged"}), ("gla", 0.05, {}))
    assert verdicts(table)[1] == snapshot(name="the first")


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


def test_no_speed_of_another_device_and_no_column_of_none(tables: Callable[..., Any]) -> None:
    (table,) = tables(
        ("deltanet", 0.6, {}), ("gla", 0.6, {}), measured=[("deltanet", 0.01, {"bench": {"device": "a GPU"}})]
    )
    assert not [column for column in table_of(table).names if "tokens/s" in column]
    assert "Speeds" not in table_of(table).caption
    assert len(table.unmeasured("train")) == 2

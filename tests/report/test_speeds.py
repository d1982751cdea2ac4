"""Stored speeds as series, tables and figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from linbench.report.figure import save, style
from linbench.report.figures.recall_speed import recall_speeds
from linbench.report.style.wording import three_digits
from linbench.report.table import save_tables
from linbench.report.tables import kernel_forms as forms
from linbench.report.tables.layer_speeds import tables
from linbench.results.comparison import comparisons
from linbench.results.roofline import growth, roofline
from linbench.results.schema import Result
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import latest, speeds
from tests.helpers.figures import speed_drawings
from tests.helpers.speeds import a_speed, layer_of


def test_growth_is_the_slope_of_logarithms() -> None:
    assert growth({64: 1.0, 128: 2.0, 512: 8.0}) == pytest.approx(1.0)
    assert growth({64: 1.0, 128: 4.0, 256: 16.0}) == pytest.approx(2.0)
    assert growth({64: 1.0, 128: 1.0, 256: 4.0}) == pytest.approx(1.0), "by least squares over all"
    assert growth({64: 1.0}) is growth({}) is None


def test_of_a_sequence_when_training_and_of_a_token_when_decoding() -> None:
    # a batch of as many tokens takes as long
    linear = [a_speed(length=length, seconds=1.0) for length in (64, 256)]
    cached = [a_speed(length=length, seconds=length / 64, question="decode") for length in (64, 256)]
    (trained,), (decoded,) = (these.series for these in speeds(linear + cached))
    assert trained.growth(AS_CALLED) == pytest.approx(1.0)
    assert decoded.growth(AS_CALLED) == pytest.approx(1.0)
    assert trained.rate(64, AS_CALLED) == pytest.approx((1024, 1024 / 1.1, 1024 / 0.9))
    assert decoded.rate(256, AS_CALLED) == pytest.approx((1, 1 / 1.1, 1 / 0.9))
    assert decoded.rate(256, REPLAYED) is decoded.rate(1, AS_CALLED) is None


def test_roofline_is_the_longer_of_both_floors_over_the_time() -> None:
    assert roofline(a_speed(seconds=1.0), OURS, AS_CALLED) == pytest.approx(0.3), (
        "30 bytes at 100 a second; 100 operations would take 0.1"
    )
    assert roofline(
        a_speed(seconds=1.0, cost={"flops": 500.0, "bytes": None}), OURS, AS_CALLED
    ) == pytest.approx(0.5)
    assert roofline(a_speed(cost={"flops": None, "bytes": None}), OURS, AS_CALLED) is None
    assert roofline(a_speed(), OURS, REPLAYED) is None


def test_what_may_stand_side_by_side() -> None:
    other = [
        a_speed(question="prefill"),
        a_speed(bench={"precision": "bf16"}),
        a_speed(
            environment={
                "device": {"name": "another"},
                "threads": 2,
                "commit": None,
                "dirty": None,
                "packages": {},
            }
        ),
        a_speed(batch=64),
        a_speed(bench={"layer": {**a_speed()["bench"]["layer"], "d_model": 128}}),
        a_speed(bench={"layer": {**a_speed()["bench"]["layer"], "form": "controlled"}}),
    ]
    together = [a_speed(), a_speed(length=512), a_speed(length=300, batch=3), a_speed("attention")]
    found = speeds([*other, *together])
    assert len(found) == 1 + len(other)
    (group,) = [these for these in found if these.lengths == [256, 300, 512]]
    assert [series.name for series in group.series] == ["attention", "deltanet"]
    assert group.load == "1,024 tokens a batch"


def test_a_prompt_alone_is_no_batch_unless_it_fills_one() -> None:
    results = [
        a_speed(length=length, batch=batch, question="prefill")
        for length, batch in ((256, 1), (256, 4), (1024, 1), (512, 1))
    ]
    assert {these.load: these.lengths for these in speeds(results)} == {
        "one sequence": [256, 512, 1024],
        "1,024 tokens a batch": [256, 1024],
    }


def test_layers_of_one_label_are_told_apart_by_their_settings() -> None:
    (group,) = speeds([a_speed(), a_speed(settings={"heads": 4})])
    assert [series.name for series in group.series] == ["deltanet (heads 2)", "deltanet (heads 4)"]


def test_what_was_measured_beside_a_peer_counts_and_the_peer_has_a_line_of_its_own() -> None:
    (group,) = speeds([a_speed(peer="fla", seconds=3.0), a_speed(), a_speed(length=64)])
    ours, theirs = group.series
    assert (ours.name, theirs.name) == ("deltanet", "deltanet, fla")
    assert ours.rate(256, AS_CALLED) == pytest.approx((1024 / 3, 1024 / 3.3, 1024 / 2.7))
    assert list(theirs.results) == [256]
    assert theirs.rate(256, AS_CALLED) == pytest.approx((1024 / 6, 1024 / 6.6, 1024 / 5.4))


COMMIT = a_speed()["environment"]["commit"]


def by(commit: str, **more: Any) -> dict[str, Any]:
    return {"environment": {**a_speed()["environment"], "commit": commit, **more}}


def test_ours_is_by_the_latest_code_and_the_peer_stays_with_a_note(snapshot: SnapshotAssertion) -> None:
    beside, alone = a_speed(peer="fla", seconds=3.0), a_speed(seconds=2.0, **by("fedcba9876543210"))
    for results in ([beside, alone], [alone, beside]):
        (group,) = speeds(results)
        ours, theirs = group.series
        assert ours.results == {256: alone}, "asked for again by other code"
        assert theirs.results == {256: beside}
        rows = tables(results)[0].frame.to_dict("records")
        assert COMMIT[:10] in rows[1]["notes"]
        assert [row["notes"] for row in rows] == snapshot(name="notes")
    (words,) = tables([a_speed(peer="fla")])
    assert [row["notes"] for row in words.frame.to_dict("records")] == ["", ""], "of one run"


def test_when_something_was_measured_decides_where_it_is_known() -> None:
    first, second = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"
    alone = a_speed(seconds=2.0, when=first, **by("fedcba9876543210"))
    beside = a_speed(seconds=3.0, when=second, peer="fla")
    assert latest([alone, beside]) == latest([beside, alone]) == beside, (
        "although it was measured beside a peer"
    )
    assert latest([{**alone, "when": second}, {**beside, "when": first}])["bench"]["peer"] is None
    assert latest([alone, a_speed(peer="fla")]) == alone, "what does not say when is older"
    again = a_speed(seconds=4.0, when=second)
    assert latest([a_speed(peer="fla", when=first), again])["bench"]["peer"], (
        "of one code what was measured together"
    )
    changed = by(COMMIT, dirty=True)
    assert latest([a_speed(peer="fla", when=first, **changed), {**again, **changed}])["when"] == second, (
        "of changes nobody knows of which"
    )


def test_a_peer_without_the_layer_has_no_note_of_another_run() -> None:
    refused = a_speed(
        sides={**a_speed()["sides"], "fla": {"reason": "has no layer"}},
        bench={"peer": {"name": "fla", "version": "1"}},
    )
    (words,) = tables([refused, a_speed(**by("fedcba9876543210"))])
    assert [row["notes"] for row in words.frame.to_dict("records")] == ["", "has no layer"]


def test_a_table_of_training(snapshot: SnapshotAssertion) -> None:
    cost = {"flops": 256_000.0, "bytes": 30.0}
    results = [
        a_speed(
            length=length,
            seconds=0.01,
            peer="fla",
            cost=cost,
            ceilings={"flops_per_second": 1e9, "bytes_per_second": 1e3},
        )
        for length in (64, 256)
    ]
    results.append(a_speed("lstm", marks=["busy"], seconds=0.5))
    results += [a_speed("fox", length=64, status="oom", reason="too large", sides={}, first_call=None)]
    (words,) = tables(results)
    rows = {row["layer"]: row for row in words.frame.to_dict("records")}
    ours = {
        "layer": "deltanet",
        "64": "102 ± 10%",
        "256": "102 ± 10%",
        "growth": "1.00",
        "roofline": "300%",
        "first call, s": "3.00",
        "notes": "",
    }
    assert rows["deltanet"] == {**ours, "kFLOP a token": "0.250", "bytes a token": "0.0293"}
    assert (rows["deltanet, fla"]["256"], rows["deltanet, fla"]["roofline"]) == ("51.2 ± 10%", "–")
    assert (rows["lstm"]["64"], rows["lstm"]["256"], rows["lstm"]["growth"], rows["lstm"]["notes"]) == (
        "–",
        "2.05 ± 10%",
        "–",
        "busy",
    )
    assert (rows["fox"]["64"], rows["fox"]["notes"]) == ("–", "oom: too large")
    assert words.title == snapshot
    assert "commit abcdef0123" in words.caption


def test_replayed_and_called_stand_in_tables_of_their_own() -> None:
    found = tables([a_speed(gpu=True, bench={"device": "a GPU"})])
    assert [words.frame["256"][0] for words in found] == ["2.05 ± 10%", "1.02 ± 10%"]
    assert ["on the device alone" in words.title for words in found] == [True, False]


def test_tables_of_decoding_and_of_memory(snapshot: SnapshotAssertion) -> None:
    alone, many = a_speed(question="decode", batch=1, seconds=2e-5), a_speed(question="decode", seconds=2e-5)
    memory = a_speed(
        question="memory", sides={OURS: {"peak_bytes": 3 << 20}}, state={"bytes": 5120}, cost=None
    )
    titles = {words.title.partition(":")[0]: words.frame["256"][0] for words in tables([alone, many, memory])}
    assert titles == snapshot


def test_a_rate_alone_has_the_spread_of_its_seconds() -> None:
    (words,) = tables(
        [a_speed(sides={OURS: {AS_CALLED: {"median": 1.0, "low": 0.5, "high": 2.0, "calls": 5}}})]
    )
    assert words.frame["256"][0] == "1.02 ± 75%"


def form(name: str, dim: int, length: int, seconds: float) -> Result:
    return a_speed(length=length, seconds=seconds, settings={"heads": 64 // dim}, bench={"backend": name})


def test_forms_beside_the_slowest() -> None:
    results = [
        form(name, dim, length, seconds * dim * length)
        for name, seconds in (("reference", 1e-4), ("scan", 5e-5), ("chunkwise", 1e-5))
        for dim in (16, 32)
        for length in (64, 256)
        if (name, dim) != ("scan", 32)
    ]
    (ladder,) = forms.form_speedups(results)
    assert (ladder.forms, ladder.head_dims, ladder.lengths) == (
        ["reference", "scan", "chunkwise"],
        [16, 32],
        [64, 256],
    )
    assert ladder.gains("chunkwise", 32) == pytest.approx({64: 10.0, 256: 10.0})
    assert ladder.gains("scan", 32) == {}
    (words,) = tables(results)
    rows = words.frame.to_dict("records")
    assert [(row["head dimension"], row["layer"], row["64"]) for row in rows] == [
        ("16", "token by token", "10.0k tokens/s"),
        ("16", "parallel scan", "2.0 x"),
        ("16", "chunkwise, torch", "10.0 x"),
        ("32", "token by token", "5.0k tokens/s"),
        ("32", "parallel scan", "–"),
        ("32", "chunkwise, torch", "10.0 x"),
    ]
    assert forms.form_speedups(results[-2:]) == [], "nothing to be relative to"


def test_recall_meets_the_speed_of_the_very_same_layers(a_result: Any) -> None:
    cells = [
        a_result(label, seed, score, form="controlled")
        for label, score in (("deltanet", 0.9), ("attention", 1.0), ("kda", 0.5))
        for seed in (0, 1)
    ]
    cells[0]["marks"] = ["lr_edge"]
    layers = {result["label"]: layer_of(result) for result in cells}
    fast = [
        a_speed(label, seconds=seconds, bench={"layer": layers[label]})
        for label, seconds in (("deltanet", 0.01), ("attention", 0.1))
    ]
    fast += [
        a_speed(label, seconds=1.0, question="decode", bench={"layer": layers[label]})
        for label in ("deltanet", "attention")
    ]
    other = a_speed("kda", bench={"layer": {**layers["kda"], "settings": {"heads": 9}}})
    (found,) = recall_speeds([*fast, other], comparisons(cells))
    medians = {
        point.label: {question: rate.median for question, rate in point.rates.items()}
        for point in found.points
    }
    assert all(
        rate.low < rate.median < rate.high for point in found.points for rate in point.rates.values()
    ), "which are drawn as well"
    assert {point.label: (point.mean, medians[point.label]) for point in found.points} == {
        "attention": (1.0, {"train": pytest.approx(10240), "decode": pytest.approx(4)}),
        "deltanet": (0.9, {"train": pytest.approx(102400), "decode": pytest.approx(4)}),
    }
    assert {point.label: point.doubtful for point in found.points} == {"attention": False, "deltanet": True}
    assert set(found.loads) == {"train", "decode"}
    assert len(found.results) == len(cells) + 4
    assert (
        recall_speeds(
            [*fast, other],
            comparisons(
                [
                    {**cell, "cell": {**cell["cell"], "model": {**cell["cell"]["model"], "form": "native"}}}
                    for cell in cells
                ]
            ),
        )
        == []
    )
    assert recall_speeds(fast[:1], comparisons(cells)) == [], "one alone is no comparison"


def test_of_two_widths_the_title_names_the_one_that_was_timed_and_grey_what_was_not(
    a_result: Any, snapshot: SnapshotAssertion
) -> None:
    labels = ("deltanet", "attention", "kda", "gla")
    cells = [a_result(label, form="controlled", d_model=width) for label in labels for width in (64, 128)]
    cells.append(a_result("retnet", form="controlled", status="failed", metrics={}))
    layers = {
        cell["label"]: layer_of(cell)
        for cell in cells
        if cell["cell"]["model"]["backbone"]["settings"]["d_model"] == 64
    }
    fast = [a_speed(label, bench={"layer": layers[label]}) for label in labels[:3]]
    fast += [a_speed(label, question="decode", bench={"layer": layers[label]}) for label in labels[:2]]
    fast.append(a_speed("kda", question="decode", status="oom", sides={}, bench={"layer": layers["kda"]}))
    (found,) = recall_speeds(fast, comparisons(cells))
    assert found.title == "mqar quick, width 64"
    assert found.missing == {
        "train": ["gla: not timed", "retnet: failed 1/1"],
        "decode": ["gla: not timed", "kda: oom", "retnet: failed 1/1"],
    }
    (drawing,) = speed_drawings(fast, cells, ["recall-speed"])
    figure = Figure()
    assert drawing.draw(figure)
    named = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    assert named == [{*labels[:3], *found.missing["train"]}, {*labels[:2], *found.missing["decode"]}]
    assert figure.get_suptitle() == snapshot
    (alone,) = recall_speeds(
        fast,
        comparisons(
            [cell for cell in cells if cell["cell"]["model"]["backbone"]["settings"]["d_model"] == 64]
        ),
    )
    assert alone.title == "mqar quick"


def test_accuracies_have_one_scale_whoever_was_timed(a_result: Any) -> None:
    cells = [
        a_result(label, score=score, form="controlled")
        for label, score in (("deltanet", 0.9), ("attention", 1.0), ("gla", 0.01))
    ]
    layers = {cell["label"]: layer_of(cell) for cell in cells}
    fast = [a_speed(label, bench={"layer": layers[label]}) for label in layers]
    fast += [
        a_speed(label, question="decode", bench={"layer": layers[label]})
        for label in ("deltanet", "attention")
    ]
    (drawing,) = speed_drawings(fast, cells, ["recall-speed"])
    figure = Figure()
    assert drawing.draw(figure)
    left, right = (axes.get_ylim() for axes in figure.axes)
    assert left == right
    assert left[0] < 0.01


def test_the_length_nearest_to_the_tested_one_is_taken(a_result: Any) -> None:
    cells = [a_result(label, form="controlled") for label in ("deltanet", "attention")]
    for cell in cells:
        cell["cell"]["task"]["settings"]["seq_len"] = 300
    fast = [
        a_speed(cell["label"], length=length, bench={"layer": layer_of(cell)})
        for cell in cells
        for length in (64, 256, 1024)
    ]
    (found,) = recall_speeds(fast, comparisons(cells))
    assert {*found.loads} == {"train"}
    assert "training at T 256," in found.loads["train"]
    assert "1,024 tokens a batch" in found.loads["train"]


@pytest.mark.slow
def test_figures_carry_the_hash_of_their_results(a_result: Any, tmp_path: Path) -> None:
    cells = [a_result(label, form="controlled") for label in ("deltanet", "attention")]
    results = [
        a_speed(label, length=length, gpu=True)
        for label in ("deltanet", "attention", "of_ones_own")
        for length in (64, 256)
    ]
    results += [a_speed(cell["label"], bench={"layer": layer_of(cell)}) for cell in cells]
    results += [form(name, 16, length, 1.0) for name in ("reference", "scan") for length in (64, 256)]
    memory = {"sides": {OURS: {"peak_bytes": 1 << 20}}, "state": {"bytes": 1 << 10}, "cost": None}
    results += [a_speed(question="memory", length=length, **memory) for length in (64, 256)]
    written = save(speed_drawings(results, cells), tmp_path)
    names = {path.stem for path in written}
    assert len(written) == 3 * len(names) == 15
    for name in names:
        hashed = (tmp_path / f"{name}.txt").read_text().split("Drawn from results ")[1].strip(".\n")
        assert hashed in (tmp_path / f"{name}.svg").read_text()
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    (trained,) = [name for name in names if "train-replayed" in name]
    assert "of_ones_own" in (tmp_path / f"{trained}.svg").read_text()
    (ladder,) = speed_drawings(results, cells, ["forms"])
    assert ladder.slug == "speed-train-forms-of-deltanet-d64-fp32-1024-tokens-a-batch-native-a-cpu-2-threads"


def test_the_title_of_forms_fits_a_single_panel() -> None:
    (drawing,) = speed_drawings(
        [form(name, 16, length, 1.0) for name in ("reference", "scan") for length in (64, 256)], [], ["forms"]
    )
    with style():
        figure = Figure()
        assert drawing.draw(figure)
        figure.draw_without_rendering()
    (title,) = figure.texts
    assert title.get_window_extent().x1 <= figure.bbox.x1


def test_forms_have_no_place_for_lengths_at_which_there_is_nothing_to_be_relative_to() -> None:
    results = [
        form(name, 16, length, 1.0)
        for name, lengths in (("reference", (64, 256)), ("scan", (64, 256, 1024)))
        for length in lengths
    ]
    (drawing,) = speed_drawings(results, [], ["forms"])
    figure = Figure()
    assert drawing.draw(figure)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["64", "256"]


@pytest.mark.slow
def test_a_crowd_is_drawn_by_generations(tmp_path: Path) -> None:
    crowd = ["attention", "fox", "deltanet", "kda", "gla", "retnet", "lstm", "comba", "mamba2", "rwkv7"]
    results = [
        a_speed(label, length=length, seconds=1.0 + i)
        for i, label in enumerate(crowd)
        for length in (64, 256)
    ]
    save(speed_drawings(results, []), tmp_path)
    (svg,) = tmp_path.glob("*.svg")
    assert all(
        words in svg.read_text() for words in (*crowd, "gates and decay", "delta rule", "softmax revisited")
    )


def test_growth_of_next_to_nothing_has_no_sign() -> None:
    (words,) = tables(
        [
            a_speed(length=length, seconds=seconds, question="decode")
            for length, seconds in ((64, 1.0), (256, 0.999))
        ]
    )
    assert [row["growth"] for row in words.frame.to_dict("records")] == ["0.00"]


@pytest.mark.slow
def test_a_line_that_ends_early_says_why(tmp_path: Path) -> None:
    failed = {"status": "oom", "reason": "CUDA out of memory", "sides": {}, "cost": None}
    results = [a_speed("fox", length=length) for length in (64, 256)] + [
        a_speed("fox", length=1024, **failed)
    ]
    save(speed_drawings([*results, a_speed(length=64), a_speed(length=1024)], []), tmp_path)
    (svg,) = tmp_path.glob("*.svg")
    assert ", oom at 1,024" in svg.read_text()


def test_one_length_is_no_curve() -> None:
    assert speed_drawings([a_speed(), a_speed("attention")], []) == []


def test_tables_are_written_in_every_format(tmp_path: Path) -> None:
    (words,) = found = tables([a_speed("a|b")])
    assert "a\\|b" in words.to_markdown()
    written = save_tables(found, tmp_path)
    assert [path.suffix for path in written] == [".md", ".csv", ".tex", ".json"]
    assert written[0].read_text() == words.to_markdown()
    read = pd.read_csv(written[1])
    assert read[["layer", "length"]].to_numpy().tolist() == [["a|b", 256]]
    rate = words.to_records()[0]
    assert read["tokens_per_second"][0] == pytest.approx(rate["tokens_per_second"], rel=1e-5)
    assert json.loads(written[3].read_text())["rows"] == words.to_records()


def test_numbers_of_every_length_with_what_was_wrong_there() -> None:
    (words,) = tables(
        [
            a_speed(seconds=0.5),
            a_speed(length=64, status="oom", reason="too large", sides={}, first_call=None),
            a_speed("b", peer="fla"),
        ]
    )
    rows = {(row["layer"], row["length"]): row for row in words.to_records()}
    assert [*rows] == [("b", 256), ("b, fla", 256), ("deltanet", 64), ("deltanet", 256)]
    failed, ours, theirs = rows["deltanet", 64], rows["deltanet", 256], rows["b, fla", 256]
    assert (failed["tokens_per_second"], failed["notes"]) == (None, "oom: too large")
    assert (ours["tokens_per_second"], ours["first_call_seconds"], ours["notes"]) == (2048.0, 3.0, "")
    assert ours["low"] < ours["tokens_per_second"] < ours["high"]
    assert (theirs["first_call_seconds"], theirs["flops_per_token"]) == (None, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [(1234.5, "1,234"), (123.4, "123"), (99.96, "100"), (12.34, "12.3"), (0.01234, "0.0123")],
)
def test_three_digits(value: float, words: str) -> None:
    assert three_digits(value) == words


@pytest.mark.slow
def test_the_verbs_draw_cells_and_speeds_alike(linbench: Callable[..., Any]) -> None:
    shape = [
        "--models",
        "deltanet,linear_attention",
        "--d-model",
        "16",
        "--lengths",
        "4,8",
        "--tokens",
        "16",
        "--device",
        "cpu",
        "--repeat",
        "1",
    ]
    assert linbench("bench", "length", *shape, "--results", "kept").code == 0
    drawn = linbench("figures", "speed", "--results", "kept")
    assert drawn.code == 0, drawn.err
    assert len(drawn.out.splitlines()) == 9
    assert linbench("figures", "--results", "kept", "recall-speed").out == ""
    assert linbench("figures", "recal-speed", "--results", "kept").err.count("recall-speed") == 2
    written = linbench("table", "--results", "kept", "--save", "tables")
    assert len(list(Path("tables").glob("*.md"))) == 4, written.err

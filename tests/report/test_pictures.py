import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from linbench.report.figures.learning_curves import draw_curves
from linbench.report.style.colors import MARKS
from linbench.report.style.layout import MOST
from linbench.report.style.lines import BINS, bin_edges, binned
from linbench.report.table import _column_width, _draw, _width
from linbench.report.tables.comparison import caption, table
from linbench.results.comparison import comparisons
from linbench.results.slices import slices
from tests.helpers.figures import FIGURES, drawings, save_figures


def curve(*accuracies: float) -> list[dict[str, float]]:
    return [
        {"step": i, "tokens": 100 * i, "accuracy": value, "loss": 1.0, "nll": 1.0}
        for i, value in enumerate(accuracies, 1)
    ]


SLICES = {"distance": {"at": [1, 2, 9], "accuracy": {"sum": [3, 1, 0], "weight": [3, 3, 3]}}}


@pytest.mark.slow
def test_a_figure_names_every_model_and_carries_the_hash_of_its_results(
    a_result: Any, tmp_path: Path
) -> None:
    results = [
        a_result(label, seed, curve=curve(0.1, 0.5, score), slices=SLICES)
        for label, score in (("one", 0.9), ("two", 0.91))
        for seed in (0, 1)
    ]
    written = save_figures(comparisons(results), tmp_path)
    assert len(written) == 6
    for name in ("learning-curves", "distance"):
        svg = (tmp_path / f"mqar-quick-native-{name}.svg").read_text()
        assert "one" in svg
        assert "two" in svg
        hashed = (
            (tmp_path / f"mqar-quick-native-{name}.txt")
            .read_text()
            .split("Drawn from results ")[1]
            .strip(".\n")
        )
        assert hashed in svg
        assert (tmp_path / f"mqar-quick-native-{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"curve": curve(0.1, 0.6)}, {"purpose": "tuning", "seed": 1000}]
)
def test_other_results_another_hash(a_result: Any, other: dict[str, Any]) -> None:
    """Another seed, the same cell measured anew, and the runs that chose the rate change the hash."""
    result = a_result(curve=curve(0.1, 0.5))
    said = []
    for results in (
        [result],
        [{**result, **other}] if other.get("curve") else [result, a_result(curve=curve(0.1, 0.5), **other)],
    ):
        (found,) = comparisons(results)
        (drawing,) = drawings(found, ["learning-curves"])
        said.append(drawing.about)
    assert said[0] != said[1]


@pytest.mark.slow
def test_three_formats_each_with_the_hash_and_the_same_bytes_again(a_result: Any, tmp_path: Path) -> None:
    found = comparisons([a_result(seed=seed, curve=curve(0.1, 0.5, 0.9)) for seed in (0, 1)])
    each = [
        {
            path.suffix: path.read_bytes()
            for path in save_figures(found, tmp_path / name, ["learning-curves"], ["png", "svg", "pdf"])
        }
        for name in "ab"
    ]
    assert each[0] == each[1]
    assert set(each[0]) == {".png", ".svg", ".pdf", ".txt"}
    assert each[0][".pdf"].startswith(b"%PDF")
    assert all(found[0].fingerprint.encode() in content for content in each[0].values())
    assert b"Date" not in each[0][".pdf"]


def test_numbers_in_names_stay_whole(a_result: Any, tmp_path: Path) -> None:
    """Only numbers of lines are cut to hundredths of a point; comments are gone."""
    results = [a_result("deltanet", lr=lr, curve=curve(0.1, 0.123456789)) for lr in (0.00316, 0.0001)]
    save_figures(comparisons(results), tmp_path, ["learning-curves"], ["svg"])
    text = (tmp_path / "mqar-quick-native-learning-curves.svg").read_text()
    assert "deltanet (lr 0.00316)" in text
    assert "<!--" not in text
    assert not re.search(r"<path[^>]*\.\d{3}", text)


def test_a_model_without_a_number_is_named_where_others_are(a_result: Any) -> None:
    results = [
        a_result("deltanet", curve=curve(0.1, 0.5), slices=SLICES),
        a_result("gla", status="failed", metrics={}, reason="out of luck"),
    ]
    for name in ("learning-curves", "distance"):
        figure = Figure()
        assert FIGURES[name].draw_on(figure, comparisons(results)[0])
        assert "gla: failed 1/1" in {text.get_text() for text in figure.axes[0].texts}


def test_a_generation_of_very_many_has_several_panels(a_result: Any) -> None:
    figure = Figure()
    assert FIGURES["learning-curves"].draw_on(
        figure,
        comparisons([a_result("gla", heads=i + 1, curve=curve(0.1, 0.5)) for i in range(2 * MOST + 1)])[0],
    )
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        f"gates and decay ({i} of 3)" for i in (1, 2, 3)
    ]


def test_the_text_of_a_figure_says_nothing_of_columns(a_result: Any, tmp_path: Path) -> None:
    save_figures(comparisons([a_result(curve=curve(0.1, 0.5))]), tmp_path, ["learning-curves"])
    text = (tmp_path / "mqar-quick-native-learning-curves.txt").read_text()
    assert "Chance is 0.125." in text
    assert not any(column in text for column in ("±", "scaled", "Steps to", "Seconds"))


def test_a_caption_says_what_diverged_counts_as_where_any_did(a_result: Any) -> None:
    sound, diverged = a_result(slices=SLICES), a_result(seed=1, status="diverged", metrics={})
    said = "1 run diverged"
    for name in ("distance", "overwrites", "slices", "lengths", "state", "width", "models"):
        assert said in FIGURES[name].caption_of(comparisons([sound, diverged])[0])
        assert "run diverged" not in FIGURES[name].caption_of(comparisons([sound])[0])
    assert "run diverged" not in FIGURES["errors"].caption_of(comparisons([sound, diverged])[0]), (
        "which has no strip of it"
    )


def test_a_caption_says_over_what_answers_an_accuracy_is_the_mean(
    a_result: Any, snapshot: SnapshotAssertion
) -> None:
    length = {"at": [0, 1, 2, 128], "accuracy": {"sum": [0, 3, 1, 0], "weight": [0, 3, 3, 3]}}
    result = a_result(
        slices=SLICES | {"length": length, "fixed": {"at": [7], "accuracy": {"sum": [1], "weight": [3]}}}
    )
    result["cell"]["task"]["name"] = "parity"
    captions = {
        name: FIGURES[name].caption_of(comparisons([result])[0])
        for name in ("lengths", "state", "width", "models", "slices")
    }
    said = sentences(captions["lengths"], "from 1 to 128")
    assert said == snapshot
    assert {name for name, words in captions.items() if said[0] in words} == {*captions} - {"slices"}
    assert "from 1 to" not in captions["slices"]
    assert "An accuracy is" not in FIGURES["state"].caption_of(comparisons([a_result()])[0])


def sentences(text: str, words: str) -> list[str]:
    """Return the sentences of a text that contain the words."""
    return [sentence for sentence in text.split(". ") if words in sentence]


def test_a_crowd_of_two_widths_has_panels_for_each_and_names_without_it(
    a_result: Any, snapshot: SnapshotAssertion
) -> None:
    results = [
        a_result(name, d_model=width, curve=curve(0.1, 0.5)) for name in CROWD[:6] for width in (32, 64)
    ]
    figure = Figure()
    assert FIGURES["learning-curves"].draw_on(figure, comparisons(results)[0])
    parts = [
        f"{name}, width {width}"
        for name in ("softmax, gates and decay", "linear attention")
        for width in (32, 64)
    ]
    assert [axes.get_title(loc="left") for axes in figure.axes] == parts
    named = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    (ylabel,) = {axes.get_ylabel() for axes in figure.axes}
    assert ylabel == snapshot
    assert named == [{"attention", "retnet"}] * 2 + [{*CROWD[1:5]}] * 2


def test_a_picture_says_what_its_hollow_marks_are_and_of_how_many_tests_a_number_is_the_mean(
    a_result: Any,
) -> None:
    found = [
        a_result(name, curve=curve(0.1, 0.5), recurrent=size, marks=marks)
        for name, size, marks in (("gla", 100, ["lr_edge"]), ("kda", 200, []))
    ]
    hollow, of_tests = "hollow: undertrained, or its learning rate in doubt", "accuracy: the mean of 2 tests"
    assert (foot(found, "learning-curves"), foot(found, "state"), foot(found[1:], "learning-curves")) == (
        hollow,
        hollow,
        "",
    )
    for result in found:
        result["cell"]["task"]["test"] = [
            {"settings": {"seq_len": length}, "examples": 8} for length in (64, 128)
        ]
    assert (foot(found, "learning-curves"), foot(found, "state")) == (hollow, f"{of_tests}; {hollow}")


def foot(results: list[Any], name: str) -> str:
    figure = Figure()
    assert FIGURES[name].draw_on(figure, comparisons(results)[0])
    return figure.get_supxlabel()


def test_nothing_stored_nothing_drawn(a_result: Any, tmp_path: Path) -> None:
    assert save_figures(comparisons([a_result(status="failed", metrics={})]), tmp_path) == []


def test_a_table_says_what_it_is(a_result: Any, snapshot: SnapshotAssertion) -> None:
    (found,) = comparisons(
        [a_result("a|b", seed, score, form="controlled") for seed, score in ((0, 0.5), (1, 0.7))]
    )
    text = table(found).to_markdown()
    assert "a\\|b" in text
    assert "0.600 ± 0.141" in text
    assert "chance is 0.125" in text
    assert "seeds 0, 1" in text
    assert [clause for clause in text.split(";") if "d_model" in clause] == snapshot
    assert "Controlled form" in text


def test_unmatched_sizes_are_said(a_result: Any, snapshot: SnapshotAssertion) -> None:
    (found,) = comparisons(
        [a_result("a", form="controlled"), a_result("b", form="controlled", parameters=1100)]
    )
    assert sentences(caption(found), "10.0%") == snapshot
    (native,) = comparisons([a_result("a"), a_result("b", parameters=1100)])
    assert "differ by" not in caption(native)


def test_what_is_not_declared_is_said_to_be(a_result: Any) -> None:
    undeclared = a_result(model={"parameters": 10, "state": None, "flops_per_token": None})
    (row,) = table(comparisons([undeclared])[0]).frame.to_dict("records")
    assert (row["state floats"], row["FLOPs/token"], row["parameters"]) == ("undeclared", "undeclared", "10")
    (row,) = table(comparisons([a_result(status="failed", metrics={}, model={})])[0]).frame.to_dict("records")
    assert (row["accuracy"], row["state floats"], row["parameters"]) == ("–", "–", "–")


def test_brackets_in_a_name_are_shown_on_a_terminal(a_result: Any) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(
        table(comparisons([a_result("attention[window=4]"), a_result("[red]b[/red]")])[0]).to_terminal()
    )
    text = console.export_text()
    assert "attention[window=4]" in text
    assert "[red]b[/red]" in text


@pytest.mark.parametrize(
    ("width", "has"),
    [(200, {"scaled", "FLOPs/token", "seconds"}), (80, {"scaled"}), (60, set()), (30, set())],
)
def test_a_narrow_terminal_does_without_columns_but_cuts_nothing_off(
    a_result: Any, width: int, has: set[str]
) -> None:
    (comparison,) = comparisons([a_result("gated_deltanet", seed, score=0.9 + seed / 10) for seed in (0, 1)])
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table(comparison).to_terminal())
    text = console.export_text()
    head = next(line for line in text.splitlines() if "model" in line)
    assert has == {name for name in ("scaled", "FLOPs/token", "seconds") if name in head}
    assert "…" not in text
    assert width < 60 or {"gated_deltanet", "0.950 ± 0.071"} <= {
        word.strip() for line in text.splitlines() for word in line.split("  ")
    }


def test_a_column_takes_as_much_of_a_terminal_as_is_gained_without_it(a_result: Any) -> None:
    (comparison,) = comparisons([a_result("日本 deltanet", seed, marks=["lr_edge"]) for seed in (0, 1)])
    whole, console = table(comparison), Console(width=80)
    for column in whole.columns:
        others = whole.select([other for other in whole.columns if other != column])
        gained = _width(_draw(whole), console) - _width(_draw(others), console)
        assert gained == _column_width(whole, column), column.name


def test_bins_hold_about_as_many_answers_each() -> None:
    counts = {"at": list(range(1, 101)), "accuracy": {"sum": [1] * 100, "weight": [1] * 50 + [3] * 50}}
    edges = bin_edges([counts, counts])
    points = binned(counts, edges)
    assert len(edges) == len(points) == BINS
    assert edges[-1] == 100
    assert [at for at, _ in points] == sorted(at for at, _ in points)
    assert points[0][1] == 1.0
    assert points[-1][1] == pytest.approx(1 / 3)


def test_a_diverged_seed_counts_as_chance_from_there_on(a_result: Any) -> None:
    results = [
        a_result(seed=0, curve=curve(0.2, 0.6, 1.0)),
        a_result(seed=1, curve=curve(0.2), status="diverged", metrics={}),
    ]
    axes = Figure().add_subplot()
    assert draw_curves(axes, comparisons(results)[0])
    drawn = max(
        (line for line in axes.get_lines() if len(line.get_xdata()) == 3),
        key=lambda line: line.get_linewidth(),
    )
    assert list(drawn.get_ydata()) == pytest.approx([0.2, (0.6 + 0.125) / 2, (1.0 + 0.125) / 2])


def overwritten(accuracy: list[int], stale: list[int]) -> dict[str, Any]:
    """Return a slice of four answers after 0, 1 and 4 overwrites each."""
    return {
        "at": [0, 1, 4],
        "accuracy": {"sum": accuracy, "weight": [4, 4, 4]},
        "stale": {"sum": stale, "weight": [0, 4, 4]},
    }


def lines(axes: Any) -> list[tuple[list[float], list[float]]]:
    return [
        (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.get_lines()
        if line.get_marker() in MARKS
    ]


def test_accuracy_and_stale_answers_against_overwrites(a_result: Any) -> None:
    results = [
        a_result(seed=seed, slices={"overwrites": overwritten([4, 2 - seed, seed], [0, 2, 3])})
        for seed in (0, 1)
    ]
    figure = Figure()
    assert FIGURES["overwrites"].draw_on(figure, comparisons(results)[0])
    left, right = figure.axes
    assert lines(left) == [([0, 1, 4], [1.0, 0.375, 0.125])]
    assert lines(right) == [([1, 4], [0.5, 0.75])], (
        "what was never overwritten cannot be answered with an older value"
    )


def test_every_panel_names_its_lines(a_result: Any) -> None:
    slices_ = {"overwrites": overwritten([4, 2, 1], [0, 2, 3])} | dict.fromkeys(
        ("slot", "hops"), SLICES["distance"]
    )
    results = [
        a_result("deltanet", slices=slices_),
        a_result("kda", slices=slices_),
        a_result("gla", status="failed", metrics={}),
    ]
    for name in ("overwrites", "slices"):
        figure = Figure()
        assert FIGURES[name].draw_on(figure, comparisons(results)[0])
        assert [{text.get_text() for text in axes.texts} for axes in figure.axes] == [
            {"deltanet", "kda", "gla: failed 1/1"}
        ] * 2


def test_without_overwrites_no_such_figure(a_result: Any) -> None:
    assert not FIGURES["overwrites"].draw_on(Figure(), comparisons([a_result(slices=SLICES)])[0])


def by_seq_len(*lengths_: int) -> list[dict[str, Any]]:
    return [
        {
            "settings": {},
            "seq_len": length,
            "chance": 0.1,
            "metrics": {"accuracy": 8 / length},
            "slices": {"overwrites": overwritten([4, 1, 1], [0, 1, 2])},
        }
        for length in lengths_
    ]


def test_accuracy_against_the_tested_length(a_result: Any) -> None:
    (found,) = comparisons([a_result(seed=seed) | {"tests": by_seq_len(16, 8, 32)} for seed in (0, 1)])
    figure = Figure()
    assert FIGURES["lengths"].draw_on(figure, found)
    assert lines(figure.axes[0]) == [([8, 16, 32], [1.0, 0.5, 0.25])]
    (alike,) = comparisons([a_result() | {"tests": by_seq_len(16, 16)}])
    assert not FIGURES["lengths"].draw_on(Figure(), alike)


def test_slices_of_several_tests_are_added_up(a_result: Any) -> None:
    tests = by_seq_len(8, 16)
    tests[1]["slices"]["overwrites"] = {"at": [1, 9], "accuracy": {"sum": [3, 0], "weight": [4, 4]}}
    found = slices(a_result() | {"tests": tests})["overwrites"]
    assert found["at"] == [0, 1, 4, 9]
    assert found["accuracy"] == {"sum": [4, 4, 1, 0], "weight": [4, 8, 4, 4]}
    assert found["stale"] == {"sum": [0, 1, 2, 0], "weight": [0, 4, 4, 0]}


def test_all_other_slices_stand_side_by_side(a_result: Any, snapshot: SnapshotAssertion) -> None:
    each = {"at": [0, 1], "accuracy": {"sum": [1, 2], "weight": [2, 2]}}
    figure = Figure()
    assert FIGURES["slices"].draw_on(
        figure, comparisons([a_result(slices=SLICES | {"slot": each, "hops": each})])[0]
    )
    assert [axes.get_xlabel() for axes in figure.axes] == snapshot
    assert lines(figure.axes[1]) == [([0, 1], [0.5, 1.0])]


def test_an_axis_says_what_a_slice_is_in_its_task(a_result: Any) -> None:
    each = {"length": {"at": [1, 2], "accuracy": {"sum": [1, 2], "weight": [2, 2]}}}
    for task, said in (
        ("parity", "place in the sequence: bits up to the answer"),
        ("modular_arithmetic", "length"),
    ):
        figure = Figure()
        assert FIGURES["slices"].draw_on(figure, replace(comparisons([a_result(slices=each)])[0], task=task))
        assert figure.axes[0].get_xlabel() == said


CROWD = (
    "attention",
    "linear_attention",
    "transnormer",
    "performer",
    "rfa",
    "retnet",
    "gla",
    "mamba2",
    "hgrn2",
    "lightning",
    "deltanet",
    "kda",
)


@pytest.mark.slow
def test_a_crowd_of_models_is_drawn_by_generation(a_result: Any, tmp_path: Path) -> None:
    slices_ = SLICES | {"overwrites": overwritten([4, 2, 1], [0, 2, 3])}
    results = [
        a_result(name, seed, curve=curve(0.1, 0.5, 0.5 + 0.02 * i), slices=slices_)
        for i, name in enumerate(CROWD)
        for seed in (0, 1)
    ]
    (found,) = comparisons(results)
    parts = ["softmax, linear attention, delta rule", "gates and decay"]
    panels = {"learning-curves": 2, "distance": 2, "overwrites": 4, "models": 1}
    drawn = {name: Figure() for name in panels}
    for name, figure in drawn.items():
        assert FIGURES[name].draw_on(figure, found)
        assert len(figure.axes) == panels[name]
        if panels[name] > 1:
            assert [title for axes in figure.axes if (title := axes.get_title(loc="left"))] == parts
    curves = drawn["learning-curves"].axes
    named = [{text.get_text().strip() for text in axes.texts} for axes in curves]
    assert named == [{*CROWD} - {*CROWD[5:10]}, {*CROWD[5:10]}]
    for axes in curves:
        assert max(text.get_position()[1] for text in axes.texts) <= 1.04, "no name stands above its axes"
    save_figures([found], tmp_path, formats=["svg"])
    written = {path.stem.removeprefix("mqar-quick-native-") for path in tmp_path.glob("*.svg")}
    assert written == set(panels)


def test_every_model_by_its_accuracy_with_a_dot_for_each_seed(a_result: Any) -> None:
    results = [
        a_result(name, seed, 0.1 * i + 0.05 * seed) for i, name in enumerate(CROWD[:9]) for seed in (0, 1)
    ]
    figure = Figure()
    assert FIGURES["models"].draw_on(figure, comparisons(results)[0])
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(CROWD[:9])
    dots = [
        list(line.get_xdata())
        for line in axes.get_lines()
        if line.get_marker() == "o" and line.get_ydata()[0] == 3
    ]
    assert dots == [[pytest.approx(0.3), pytest.approx(0.35)], [pytest.approx(0.325)]]
    assert not FIGURES["models"].draw_on(Figure(), comparisons(results[:8])[0]), "a few need no such figure"


def test_steps_to_nine_tenths_are_the_median_over_seeds(a_result: Any) -> None:
    found = curve(0.3, 0.6, 0.9)
    reached = [a_result("deltanet", seed) | {"curve": found[:count]} for seed, count in enumerate((3, 3, 2))]
    assert table(comparisons(reached)[0]).frame["steps to 0.9"].tolist() == ["3"]
    assert table(comparisons([one | {"curve": found[:2]} for one in reached])[0]).frame[
        "steps to 0.9"
    ].tolist() == ["–"]

"""Figures of language models that were asked a task."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from linbench.common.hashing import digest
from linbench.report.data import ReportData
from linbench.report.figure import Drawing, save
from linbench.report.figures import drawings
from linbench.report.page.page import page
from linbench.report.style.answer_kinds import KINDS, THICK
from linbench.report.style.colors import WITHOUT_GENERATION, styles_by_place
from linbench.report.style.labels import MAX_LINES_PER_PANEL, MISSING, NOT_MEASURED
from linbench.report.style.lines import BINS
from linbench.report.tables import all_tables
from linbench.results.probes import asked_groups
from linbench.results.store import Store
from tests.helpers.records import a_probe

ERRORS = {"stale": 0.3, "stale_previous": 0.15, "stale_middle": 0.05, "cross": 0.1, "alien": 0.1}


def slice_of(*shares: float) -> dict[str, Any]:
    """Return a slice whose values are 1, 2, ... with these accuracies."""
    at = [*range(1, len(shares) + 1)]
    return {"at": at, "accuracy": {"sum": [4 * share for share in shares], "weight": [4] * len(shares)}}


def asked(label: str, *, errors: bool = False, slices: Any = None, accuracy: float = 0.5, **more: Any) -> Any:
    """Return a result; `more`: changed fields of its identity."""
    result = a_probe(digest([label, more]), label, accuracy, **more)
    if slices is not None:
        result["slices"] = slices
    result["metrics"] = {"accuracy": accuracy, "nll": 1.5} | (ERRORS if errors else {})
    return result


def drawn(results: Sequence[Any]) -> dict[str, Drawing]:
    """Return the drawings of results by the last word of their slugs."""
    found = drawings(ReportData(pretrained=results), ["language-models"])
    by_kind = {drawing.slug.rpartition("-")[2]: drawing for drawing in found}
    assert len(by_kind) == len(found)
    return by_kind


def sheet_of(drawing: Drawing) -> Figure:
    sheet = Figure()
    assert drawing.draw(sheet)
    return sheet


def lines(axes: Any) -> list[list[tuple[float, float]]]:
    """Return the points of models' lines, which have marks as no other line has; gaps are left out."""
    found = [line.get_xydata() for line in axes.get_lines() if line.get_marker() != "None"]
    return [[(float(x), float(y)) for x, y in points if math.isfinite(y)] for points in found]


def words(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_kinds_of_answers_are_drawn_where_a_task_tells_them_apart() -> None:
    assert [*drawn([asked("one", errors=True), asked("two")])] == ["slices", "answers"]
    assert [*drawn([asked("one"), asked("two")])] == ["slices"]
    assert drawn([]) == {}


def test_each_question_has_drawings_of_its_own_below_its_table() -> None:
    data = ReportData(pretrained=[asked("one"), asked("two", shots=2), asked("one", shots=2)])
    found = drawings(data, ["language-models"])
    assert [drawing.table for drawing in found] == [table.slug for table in all_tables(data)]
    assert len(found) == len({drawing.slug for drawing in found}) == 2
    assert sorted(len(lines(sheet_of(drawing).axes[0])) for drawing in found) == [1, 2]


def test_each_slice_has_a_panel_with_a_line_for_each_model_and_chance() -> None:
    slices = {"distance": slice_of(1.0, 0.5), "hops": slice_of(0.25, 0.0, 0.75)}
    sheet = sheet_of(drawn([asked("one", slices=slices), asked("two")])["slices"])
    left, right = sheet.axes
    assert lines(left) == [[(1, 1), (2, 0.5)], [(1, 0.5), (3, 0.5)]]
    assert lines(right) == [[(1, 0.25), (2, 0), (3, 0.75)]]
    assert sorted(words(left)) == ["one", "two"]
    for axes in sheet.axes:
        assert [0.2, 0.2] in [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()]


def test_of_many_values_bins_are_drawn_the_same_for_all_models() -> None:
    many = [asked(name, slices={"distance": slice_of(*[share] * 40)}) for name, share in (("a", 0), ("b", 1))]
    first, second = lines(sheet_of(drawn(many)["slices"]).axes[0])
    assert len(first) == BINS
    assert [x for x, _ in first] == [x for x, _ in second]


def test_a_model_that_lacks_a_slice_is_named_in_grey() -> None:
    both = {"distance": slice_of(1.0, 0.5), "hops": slice_of(0.5, 0.5)}
    some = [asked("one", slices=both), asked("two", slices={"hops": both["hops"]})]
    left, right = sheet_of(drawn(some)["slices"]).axes
    assert words(left) == [f"two: {NOT_MEASURED}", "one"]
    assert left.texts[0].get_color() == MISSING
    assert sorted(words(right)) == ["one", "two"]


def test_a_model_without_a_single_answer_in_a_slice_is_named_in_grey() -> None:
    empty = {"at": [1, 2], "accuracy": {"sum": [0, 0], "weight": [0, 0]}}
    results = [
        asked("one", slices={"distance": slice_of(1.0, 0.5)}),
        asked("two", slices={"distance": empty}),
    ]
    (axes,) = sheet_of(drawn(results)["slices"]).axes
    assert words(axes) == [f"two: {NOT_MEASURED}", "one"]


def test_many_models_are_divided_over_panels_of_the_same_axis() -> None:
    slices = {name: slice_of(0.5, 1.0) for name in ("distance", "hops", "age", "size")}
    names = [f"model {place:02}" for place in range(2 * MAX_LINES_PER_PANEL + 1)]
    results = [asked(name, slices=slices) for name in names]
    sheet = sheet_of(drawn(results)["slices"])
    assert len(sheet.axes) == 3 * len(slices)
    for panel in range(len(slices)):
        of_slice = sheet.axes[panel :: len(slices)]
        assert sorted(name for axes in of_slice for name in words(axes)) == names
        assert max(len(lines(axes)) for axes in of_slice) <= MAX_LINES_PER_PANEL
        assert len({axes.get_xlim() for axes in of_slice}) == 1


def test_a_panel_none_of_whose_models_has_the_slice_names_them_all() -> None:
    count = 2 * MAX_LINES_PER_PANEL
    other = {"hops": slice_of(0.5, 1.0)}
    results = [
        asked(f"{place:02}", slices=other | ({"distance": slice_of(0.5, 1.0)} if place < count // 2 else {}))
        for place in range(count)
    ]
    sheet = sheet_of(drawn(results)["slices"])
    empty = next(axes for axes in sheet.axes if not lines(axes))
    assert words(empty) == [f"{place:02}: {NOT_MEASURED}" for place in range(count // 2, count)]
    full = next(axes for axes in sheet.axes if axes.get_xlabel() == empty.get_xlabel() and lines(axes))
    assert empty.get_xlim() == full.get_xlim()


def test_places_without_a_slice_hold_no_panel() -> None:
    slices = {name: slice_of(0.5, 1.0) for name in ("one", "two", "three", "four", "five")}
    assert len(sheet_of(drawn([asked("alone", slices=slices)])["slices"]).axes) == len(slices)


def test_a_slice_of_one_value_says_no_more_than_the_table() -> None:
    assert drawn([asked("alone", slices={"distance": slice_of(0.5)})]) == {}
    both = {"distance": slice_of(0.5), "hops": slice_of(0.5, 1.0)}
    (axes,) = sheet_of(drawn([asked("alone", slices=both)])["slices"]).axes
    assert axes.get_xlabel() == "hops"


def test_each_model_has_a_bar_the_best_above_and_those_without_kinds_below() -> None:
    results = [asked("none"), asked("worse", errors=True), asked("better", errors=True, accuracy=0.8)]
    results[2]["metrics"] |= {"stale": 0.0, "stale_previous": 0.0, "stale_middle": 0.0}
    (axes,) = sheet_of(drawn(results)["answers"]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "worse", "better"]
    assert words(axes) == [NOT_MEASURED]
    widths: dict[float, list[float]] = {}
    for patch in axes.patches:
        assert isinstance(patch, Rectangle)
        assert patch.get_height() == pytest.approx(THICK)
        widths.setdefault(round(patch.get_y() + THICK / 2), []).append(patch.get_width())
    assert widths[1] == pytest.approx([0.5, 0.15, 0.05, 0.1, 0.1, 0.1])
    assert widths[2] == pytest.approx([0.8, 0.1, 0.1])


def test_a_single_model_has_both_drawings() -> None:
    found = drawn([asked("alone", errors=True)])
    assert words(sheet_of(found["slices"]).axes[0]) == ["alone"]
    (bars,) = sheet_of(found["answers"]).axes
    assert len(bars.patches) == len(KINDS) - len(("newer", "a like key's"))


def test_models_of_one_name_are_told_apart() -> None:
    results = [asked("one"), asked("two"), asked("two", precision="bf16")]
    (group,) = asked_groups(results)
    assert group.names == ["one", "two (precision bf16)", "two (precision fp32)"]
    other = asked("one", model={"digest": "e" * 64})
    (group_of_one,) = asked_groups([*results[:1], other])
    assert sorted(group_of_one.names) == ["one (weights dddddddd)", "one (weights eeeeeeee)"]
    assert sorted(words(sheet_of(drawn(results)["slices"]).axes[0])) == sorted(group.names)


def test_a_model_has_its_colour_in_whatever_it_is_asked() -> None:
    results = [asked(name) for name in "abc"] + [asked(name, shots=1) for name in "bc"]
    seen: dict[str, set[str]] = {}
    for drawing in drawings(ReportData(pretrained=results), ["language-models"]):
        for text in sheet_of(drawing).axes[0].texts:
            seen.setdefault(text.get_text(), set()).add(str(text.get_color()))
    assert [len(colours) for colours in seen.values()] == [1, 1, 1]
    assert len(set.union(*seen.values())) == 3


def test_models_side_by_side_differ_in_colour_while_there_are_any() -> None:
    count = len(WITHOUT_GENERATION)
    for places in (range(count), [0, count, 2 * count, 3, count + 3]):
        assert len({style.colour for style in styles_by_place(places)}) == len(places)
    assert styles_by_place([0, count])[0].colour == styles_by_place([0])[0].colour
    assert len(set(styles_by_place(range(2 * count)))) == 2 * count


def test_the_report_shows_them_below_their_table() -> None:
    results = [asked("one", errors=True), asked("two", errors=True), asked("one", shots=2)]
    text = page([], title="mine", pretrained=results)
    section = text.partition('id="overview"')[2].partition('class="section"')[0]
    assert section.count("<figure ") == text.count("<figure ") == 3
    parts = section.split("<h3>")[1:]
    assert sorted(part.count("<figure ") for part in parts) == [1, 2]
    for drawing in drawings(ReportData(pretrained=results), ["language-models"]):
        assert f'data-name="{drawing.title}"' in section
    assert section.startswith(" open>")
    assert 'id="speed"' not in text


def test_the_head_of_the_report_counts_models_and_comparisons() -> None:
    results = [asked("one"), asked("two"), asked("three"), asked("one", shots=2)]
    said = page([], title="mine", pretrained=results).partition("<dt>Asked</dt>")[2].partition("</div>")[0]
    assert re.findall("[0-9]+", said) == ["3", "2"]
    assert "<dt>Asked</dt>" not in page([], title="mine")


def test_they_are_drawn_on_the_command_line(linbench: Callable[..., Any]) -> None:
    store = Store("results")
    store.prepare()
    for result in (asked("one", errors=True), asked("two", errors=True)):
        store.put(result)
    ended = linbench("figures", "language-models", "--results", "results", "--formats", "svg")
    assert ended.code == 0, ended.err
    slices, answers = sorted(Path("results/figures").glob("*.svg"), reverse=True)
    for picture in (slices, answers):
        assert picture.name.startswith("probe-mqar-quick-0-shots-answers-hidden-")
        assert "one" in picture.read_text()
        assert picture.with_suffix(".txt").exists()
    assert {str(slices), str(answers)} <= set(ended.out.split())


def test_whatever_a_record_says_files_stay_in_their_folder(tmp_path: Path) -> None:
    whole = {"at": [-3, 5], "accuracy": {"sum": [1, 1], "weight": [1, 1]}}
    empty = {"at": [1, 2], "accuracy": {"sum": [0, 0], "weight": [0, 0]}}
    hostile = asked("<script>|\x1b[31m\n" * 60, errors=True) | {
        "preset": "../../elsewhere",
        "slices": {"../x": whole, "none": {"at": []}, "other": {"at": [1]}, "empty": empty},
    }
    found = drawings(ReportData(pretrained=[hostile]), ["language-models"])
    assert [len(sheet_of(drawing).axes) for drawing in found] == [1, 1]
    written = save(found, tmp_path / "figures", ["svg"])
    assert {path.parent for path in written} == {tmp_path / "figures"}
    assert not any("\x1b" in path.read_text() for path in written)
    assert "<script>" not in page([], title="mine", pretrained=[hostile]).partition("<script>")[2]

"""The page of published tables, and its figure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from linbench.reproduction.document import document
from linbench.reproduction.figure import drawing
from linbench.reproduction.ran import Ran, most
from tests.helpers.published import scored, small_table

SCORES = {(0.001, 0): 0.9, (0.001, 1): 0.88, (0.01, 0): 0.5, (0.01, 1): 0.5}


def on(kind: str, scores: Mapping[tuple[float, int], float], **changes: Any) -> Ran:
    one = small_table(**changes)
    return Ran(one, one.runs(), kind, scored(scores))


def page(*found: Ran) -> str:
    return document(found, command="linbench reproduce --save page.md", beside=Path("page.md"))


def test_a_page_has_every_table_that_has_run(snapshot: SnapshotAssertion) -> None:
    assert page(on("cpu", SCORES)) == snapshot


def test_of_a_table_that_has_not_run_there_is_a_line_alone() -> None:
    text = page(on("cpu", {}))
    assert "1 not run yet" in text
    assert "##" not in text
    assert ".svg" not in text


def test_each_reason_is_counted(snapshot: SnapshotAssertion) -> None:
    missed = on("cpu", SCORES, rows={"deltanet": [20]}, trust="card")
    unscored = on("cpu", SCORES, unit="macro")
    lines = page(missed, unscored, on("cpu", {})).splitlines()
    assert lines[2:4] == snapshot


def test_a_number_that_is_met_but_was_not_read_at_its_source_is_counted(snapshot: SnapshotAssertion) -> None:
    met, read = on("cpu", SCORES, trust="card"), on("cpu", SCORES)
    assert page(met, read).splitlines()[4] == snapshot


def test_the_kind_of_device_with_most_values_is_shown() -> None:
    assert most([on("cpu", {}), on("gpu", SCORES), on("other", SCORES)]).kind == "gpu"


def test_points_have_their_verdicts_and_names_where_they_are_missed() -> None:
    sheet = Figure()
    rows = {"deltanet": [90], "linear_attention": [20], "gla": ["solved"]}
    assert drawing([on("cpu", SCORES, rows=rows)]).draw(sheet)
    (axes,) = sheet.axes
    assert [text.get_text() for text in axes.texts] == ["linear_attention, short"]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    points = [tuple(np.asarray(dot.get_xydata())[0]) for dot in dots]
    assert points == [(90.0, 90.0), (20.0, 90.0)]


def test_nothing_is_drawn_of_nothing() -> None:
    assert not drawing([on("cpu", {})]).draw(Figure())


def test_a_figure_is_known_by_what_it_shows() -> None:
    assert (
        drawing([on("cpu", SCORES)]).fingerprint
        != drawing([on("cpu", {**SCORES, (0.001, 0): 0.8})]).fingerprint
    )

"""Captions of figures and tables, in `__snapshots__`.

After a change that means to change them, run `pytest tests/report/test_wording.py --snapshot-update`, read
the difference, and make the shown tables and figures anew with `make drawn`.
"""

from textwrap import fill
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.figure import ComparisonFigure
from linbench.report.figures import drawings, figures
from linbench.report.tables import all_tables, gate
from linbench.results.gate_policy import Policy
from tests.helpers.figures import speed_drawings
from tests.helpers.learning import a_curve
from tests.helpers.records import a_probe
from tests.helpers.snapshots import TextFile
from tests.helpers.speeds import a_speed

QUESTIONS = ("train", "prefill", "decode", "memory")


@pytest.fixture
def wording(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


@pytest.fixture(scope="module")
def data(a_result: Any) -> ReportData:
    """Results of two comparisons and of every question about layers."""
    cells = [
        a_result(name, seed, form="controlled", curve=a_curve(400))
        for name in ("deltanet", "gla")
        for seed in (0, 1)
    ]
    cells += [a_result("kda", form="controlled", kv_pairs=4, status="diverged", metrics={})]
    speeds = [
        a_speed(name, question=question, length=length, gpu=gpu)
        for name in ("deltanet", "gla")
        for question in QUESTIONS
        for length in (64, 256)
        for gpu in (True, False)
    ]
    return ReportData(cells, speeds)


def in_lines(captions: dict[str, str]) -> str:
    return "".join(f"{name}\n{fill(words, 110)}\n\n" for name, words in captions.items())


def test_captions_of_figures_of_comparisons(data: ReportData, wording: SnapshotAssertion) -> None:
    _, diverged = data.comparisons
    captions = {
        figure.name: figure.caption_of(diverged, with_setting=False)
        for figure in figures()
        if isinstance(figure, ComparisonFigure)
    }
    assert in_lines(captions) == wording


def test_captions_of_figures_of_speeds(data: ReportData, wording: SnapshotAssertion) -> None:
    captions = {drawing.slug: drawing.caption for drawing in speed_drawings(data.speeds, data.cells)}
    assert len(captions) > len(QUESTIONS)
    assert in_lines(captions) == wording


def test_captions_of_figures_of_language_models(wording: SnapshotAssertion) -> None:
    kinds = {"stale_previous": 0.1, "stale_middle": 0.0, "cross": 0.1, "alien": 0.1}
    hidden, written = a_probe("a" * 64), a_probe("b" * 64, shots=2, answers="written", precision="bf16")
    hidden["metrics"] |= kinds
    found = drawings(ReportData(pretrained=[hidden, written]), ["language-models"])
    captions = {drawing.slug: drawing.caption for drawing in found}
    captions |= {f"{drawing.slug} below its table": drawing.note for drawing in found}
    assert in_lines(captions) == wording


def test_captions_of_tables(data: ReportData, wording: SnapshotAssertion) -> None:
    tables = all_tables(data)
    assert len(tables) > len(QUESTIONS)
    assert in_lines({table.slug: table.caption for table in tables}) == wording


def test_captions_of_a_gate(wording: SnapshotAssertion) -> None:
    policies = {"speeds shown": Policy(), "speeds gated": Policy.parse({"slower": 1.1}, where="policy")}
    captions = {"cells": gate.caption(Policy())}
    captions |= {name: gate.speed_caption(policy) for name, policy in policies.items()}
    assert in_lines(captions) == wording

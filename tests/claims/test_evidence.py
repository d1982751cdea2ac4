"""The number that a measure reads from results, for every seed."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.claims.claim import read_section
from linbench.claims.interval import Interval, point
from linbench.claims.measure import Measure
from linbench.claims.page import detail, to_json
from linbench.claims.scores import seed_evidence
from linbench.claims.seed_evidence import ExcludedSeed, SeedEvidence
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import SUPPORTED, UNDECIDED, verdict
from linbench.experiments.cell import Cell
from linbench.results.record import UNLAWFUL
from linbench.results.schema import Result
from tests.helpers.claims import CLAIM, a_claim, a_result, alike, cells_of


def slice_(**values: Sequence[float]) -> dict[str, Any]:
    """Sums and weights of 10 places each."""
    return {
        "at": list(range(len(next(iter(values.values()))))),
        **{
            name: {"sum": [10 * v for v in these], "weight": [10] * len(these)}
            for name, these in values.items()
        },
    }


def read_measure(
    measure: Measure, cells: Sequence[Cell], results: Mapping[str, Result], **changes: Any
) -> SeedEvidence:
    """Read a measure with some settings changed."""
    return seed_evidence(measure.settings.model_copy(update=changes), cells, results)


def test_figures_look_at_metrics_slices_tests_steps_and_settings() -> None:
    tests = {"task.min_length": 4, "task.max_length": 8}
    (claim,) = read_section(
        {
            "title": "t",
            "cells": {
                "parity": {
                    "tasks": [
                        {"task": "parity", "set": tests, "test": [{"max_length": 8}, {"max_length": 16}]}
                    ],
                }
            },
            "claims": {"C1": CLAIM},
        },
        where="a.yaml",
    )
    cells = cells_of(claim, "delta")
    parts_of = [
        {
            "settings": test.settings.model_dump(mode="json"),
            "chance": 0.5,
            "metrics": {"accuracy": score},
            "slices": {"length": slice_(accuracy=values)},
        }
        for test, score, values in zip(
            cells[0].tested_on, (0.9, 0.7), ([1.0, 1.0, 0.8], [1.0, 0.9, 0.2, 0.95]), strict=True
        )
    ]
    curve = [{"accuracy": 0.5, "step": 10}, {"accuracy": 0.9, "step": 20}, {"accuracy": 1.0, "step": 30}]
    found = {cell.id: a_result(cell, 0.8, "cpu", tests=parts_of, curve=curve, chance=0.5) for cell in cells}

    def read(**measure: Any) -> float:
        return read_measure(claim.measures["delta"], cells, found, **measure).between.low

    assert read() == pytest.approx(0.8)
    assert read(of="scaled") == pytest.approx(0.6)
    assert read(test={"max_length": 16}) == pytest.approx(0.7)
    assert read(test={"max_length": 16}, of="scaled") == pytest.approx(0.4)
    assert read(test={"max_length": 16}, at={"length": 2}) == pytest.approx(0.2)
    assert read(test={"max_length": 16}, at={"length": "1-2"}) == pytest.approx(0.55)
    assert read(at={"length": 2}) == pytest.approx((0.8 + 0.2) / 2), "of all tests together"
    assert read(of="steps to 0.9") == 20
    assert read(test={"max_length": 16}, along="length", reaching=0.9) == 1, (
        "and not 3, beyond a place that failed"
    )
    assert read(test={"max_length": 8}, along="length", reaching=0.9) == 1
    never = {name: result | {"curve": curve[:1]} for name, result in found.items()}
    assert read_measure(claim.measures["delta"], cells, never, of="steps to 0.9").between.low == math.inf


def test_the_largest_setting_that_reaches_so_much(kept: Callable[..., Stored]) -> None:
    claim = a_claim(
        {"grid": {"task.kv_pairs": [2, 4, 8]}}, measure={"along": "task.kv_pairs", "reaching": 0.9}
    )
    cells = cells_of(claim, "delta", seeds=3)
    scores = {2: 1.0, 4: 0.95, 8: 0.5}
    found = {cell.id: a_result(cell, scores[cell.task.settings.kv_pairs], "cpu") for cell in cells}
    assert read_measure(claim.measures["delta"], cells, found) == SeedEvidence({0: 4.0, 1: 4.0, 2: 4.0})
    del found[cells[0].id]
    assert read_measure(claim.measures["delta"], cells, found).missing == 1
    nothing = {name: result | {"metrics": {"accuracy": 0.1}} for name, result in found.items()}
    assert read_measure(claim.measures["delta"], cells, nothing).between.low == 0


@pytest.mark.parametrize(
    ("scores", "marked", "between", "words"),
    [
        ((1.0, 0.95, 0.5), 8, (4.0, 8.0), "4.000 to 8.000"),
        ((1.0, 0.5, 0.5), 8, (2.0, 2.0), "2.000"),
        ((1.0, 0.95, 0.5), 4, (4.0, 4.0), "4.000"),
        ((1.0, 0.5, 0.95), 4, (2.0, 8.0), "2.000 to 8.000"),
        ((1.0, 0.5, 0.5), 4, (2.0, 4.0), "2.000 to 4.000"),
    ],
)
def test_a_run_that_was_still_getting_better_moves_the_largest_setting_where_it_decides_it(
    scores: tuple[float, float, float], marked: int, between: tuple[float, float], words: str
) -> None:
    claim = a_claim(
        {"grid": {"task.kv_pairs": [2, 4, 8]}}, measure={"along": "task.kv_pairs", "reaching": 0.9}
    )
    cells = cells_of(claim, "delta", seeds=3)
    score = dict(zip((2, 4, 8), scores, strict=True))
    found = {cell.id: a_result(cell, score[cell.task.settings.kv_pairs], "cpu") for cell in cells}
    for cell in cells:
        if cell.seed and cell.task.settings.kv_pairs == marked:
            found[cell.id]["marks"] = ["undertrained"]
    measured = read_measure(claim.measures["delta"], cells, found)
    assert [seed.bounds for seed in measured.excluded.values()] == [between, between]
    assert [obstacle.seeds for obstacle in measured.obstacles] == [2]
    assert str(measured) == words
    losses = {name: result | {"metrics": {"nll": 1.0}} for name, result in found.items()}
    best = read_measure(claim.measures["delta"], cells, losses, of="nll")
    assert [best.of_seed(seed) is None for seed in range(3)] == [False, True, True], "it is no share"


def test_a_seed_of_which_a_rate_is_in_doubt_as_well_is_not_only_short_of_training() -> None:
    claim = a_claim({"tasks": ["mqar", "induction"]}, measure={"across": "tasks"})
    cells = cells_of(claim, "delta")
    marks = {"mqar": "undertrained", "induction": "lr_edge"}
    found = {cell.id: a_result(cell, 0.9, "cpu", marks=[marks[cell.task.name]]) for cell in cells}
    measured = read_measure(claim.measures["delta"], cells, found)
    assert {seed.why for seed in measured.excluded.values()} == {"lr_edge"}
    assert not measured.has_value


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("mark", UNLAWFUL)
def test_a_layer_that_breaks_a_law_says_nothing_even_where_marks_do_not_count(
    mark: str, marked: bool
) -> None:
    claim = a_claim(measure={"marked": marked})
    cells = cells_of(claim, "delta")
    found = {cell.id: a_result(cell, 0.9, "cpu", marks=["undertrained", mark]) for cell in cells}
    measured = read_measure(claim.measures["delta"], cells, found)
    assert measured.values == {}
    assert {(seed.why, seed.bounds) for seed in measured.excluded.values()} == {(mark, None)}


def test_the_mean_of_several_tasks_is_a_figure_for_every_seed(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim({"tasks": ["mqar", "induction"]}, measure={"across": "tasks"})
    of_both = kept(
        claim, {"delta": [0.8, 0.9, 0.85, 0.9, *alike(1.0, 24)], "sum": [0.1, 0.2, 0.3, 0.4, *alike(0.5, 24)]}
    )
    found = verdict(claim, of_both)
    figures = found.rulings[0].evidence
    assert list(figures["delta"].values.values()) == pytest.approx([0.85, 0.875, *alike(1.0, 12)])
    assert list(figures["sum"].values.values()) == pytest.approx([0.15, 0.35, *alike(0.5, 12)])
    assert found.outcome == SUPPORTED
    table = [row for row in "\n".join(detail(found, of_both)).splitlines() if row.startswith("|")]
    assert table == snapshot(name="table")
    (first, *_), alone = cells_of(claim, "delta"), dict(of_both.results)
    del of_both.results[first.id]
    assert verdict(claim, of_both).outcome == UNDECIDED
    of_both.results = alone
    of_both.results[first.id]["marks"] = ["undertrained"]
    delta = verdict(claim, of_both).rulings[0].evidence["delta"]
    assert isinstance(delta, SeedEvidence)
    assert (delta.obstacles[0].seeds, delta.excluded[0].value) == (1, pytest.approx(0.85))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({0: 0.5, 1: 0.6, 2: 0.7}, "0.600 (0.500 to 0.700)"),
        ({0: 0.5}, "0.500"),
        ({0: 1500.0, 1: 1500.0, 2: 3000.0}, "1,500 (1,500 to 3,000)"),
        ({0: 20.0, 1: math.inf, 2: 20.0}, "20.000 (20.000 to never)"),
        ({0: 20.0, 1: math.inf, 2: math.inf}, "never (20.000 to never)"),
        ({}, "–"),
    ],
)
def test_a_figure_in_words(values: dict[int, float], words: str) -> None:
    assert str(SeedEvidence(values)) == words


IMPROVING = {seed: ExcludedSeed("undertrained", Interval(0.3 + seed / 100, 1.0)) for seed in range(20)}
"""Twenty seeds that were still improving, at .30 to .49."""


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (SeedEvidence({0: 0.5, 1: 0.5}), "2 seeds"),
        (SeedEvidence({0: 0.5, 1: 0.6}, missing=3), "2 seeds: 0.500, 0.600; 3 not run yet"),
        (SeedEvidence(dict(enumerate([0.5, *[0.6] * 8]))), "9 seeds"),
        (SeedEvidence({}, excluded={2: IMPROVING[2]}), "0 seeds; 1 still improving: 0.320"),
        (SeedEvidence({20: 0.5}, excluded=IMPROVING), "1 seed; 20 still improving: 0.300 to 0.490"),
        (
            SeedEvidence(
                {},
                excluded={
                    0: ExcludedSeed("diverged", None),
                    1: ExcludedSeed("lr_edge", point(0.25)),
                    2: ExcludedSeed("diverged", None),
                },
            ),
            "0 seeds; 2 diverged; 1 did best at the edge of the learning rates tried: 0.250",
        ),
    ],
)
def test_what_a_value_is_made_of_in_words(evidence: SeedEvidence, words: str) -> None:
    assert evidence.out_of == words


def test_what_was_never_reached_is_a_word_in_json(kept: Callable[..., Stored]) -> None:
    claim = a_claim(measure={"of": "steps to 0.9"})
    kept(claim, {"delta": [0.9, 0.9, 0.5]})
    stored = kept(claim, {"sum": [0.9, 0.5]}, marks=["undertrained"])
    told = to_json(verdict(claim, stored))["devices"][0]["figures"]
    assert told["delta"] == {
        "value": 7.0,
        "low": 7.0,
        "high": "never",
        "seeds": {"0": 7.0, "1": 7.0, "2": "never"},
        "aside": {},
        "missing": 11,
        "between": None,
    }
    assert told["sum"]["aside"] == {
        "0": {"why": "undertrained", "value": 7.0},
        "1": {"why": "undertrained", "value": "never"},
    }
    json.dumps(told, allow_nan=False)

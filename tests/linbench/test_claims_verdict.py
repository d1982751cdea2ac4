"""Verdicts on results that were made up."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from linbench.cell import Cell, digest
from linbench.claims import shown
from linbench.claims.bench import TRAINING
from linbench.claims.cells import of_measure, parts
from linbench.claims.claim import Claim, section
from linbench.claims.figure import Figure, figure
from linbench.claims.outlook import outlook
from linbench.claims.page import detail, line, plain
from linbench.claims.speed import Speed, untimed
from linbench.claims.stored import Stored
from linbench.claims.verdict import NOTHING_TRAINED, REFUTED, SUPPORTED, UNDECIDED, budget, decide, verdict
from linbench.search import default_search, learning_rate
from linbench.speeds import Rate
from linbench.store import SPEED, Result, Store

CLAIM: dict[str, Any] = {
    "says": "the delta rule recalls more", "source": "x", "published": "y", "tier": "T1", "setting": "z", "rule": "w",
    "measures": {"delta": "deltanet", "sum": "linear_attention"}, "supported": "delta - sum >= 0.2", "refuted": "delta <= sum",
}  # fmt: skip


def a_claim(cells: dict[str, Any] | None = None, **changes: Any) -> Claim:
    small = {"tasks": ["mqar"], "seeds": "0-2", "set": {"model.d_model": 16}} | (cells or {})
    (claim,) = section({"title": "t", "cells": {"recall": small}, "claims": {"C1": CLAIM | changes}}, where="a.yaml")
    return claim


def a_result(cell: Cell, score: float, device: str, **more: Any) -> Result:
    identity = {**cell.identity, "device": device}
    return {
        "id": digest(identity), "schema": identity["schema"], "label": cell.model.label, "purpose": cell.purpose, "search": None, "cell": identity,
        "chance": 0.25, "status": "ok", "reason": None, "marks": [], "metrics": {"accuracy": score, "nll": 1.0}, "slices": {},
        "curve": [{"accuracy": score, "step": 7}], "model": {}, "seconds": 1.0,
    } | more  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Stored]:
    """A store in which every seed of a measure has the scores given."""

    def keep(claim: Claim, scores: dict[str, Sequence[float]], device: str = "cpu", longer: int = 1, **more: Any) -> Stored:
        store = Store(tmp_path)
        store.prepare()
        for name, values in scores.items():
            for cell, score in zip(of_measure(claim, name, longer=longer), values, strict=False):
                store.put(a_result(cell, score, device, **more))
        return Stored([store])

    return keep


@pytest.mark.parametrize(
    ("delta", "total", "answer", "why"),
    [
        ([0.9, 0.92, 0.94], [0.5, 0.6, 0.7], SUPPORTED, ""),
        ([0.5, 0.5, 0.5], [0.6, 0.7, 0.8], REFUTED, ""),
        ([0.7, 0.7, 0.7], [0.6, 0.6, 0.6], UNDECIDED, "neither what bears it out nor what refutes it"),
        ([0.9, 0.9], [0.5, 0.5, 0.5], UNDECIDED, "delta: 1 of 3 seeds missing"),
        ([], [0.5, 0.5], UNDECIDED, "delta: 3 of 3 seeds missing; sum: 1 of 3 seeds missing"),
        ([0.9], [0.5], UNDECIDED, "delta, sum: 2 of 3 seeds missing"),
        ([], [], UNDECIDED, "nothing of it was run"),
        ([1.0, 1.0, 0.4], [0.5, 0.55, 0.6], UNDECIDED, "supported by all seeds, undecided without seed 0 of delta"),
        ([0.9, 0.9, 0.9], [0.3, 0.85, 0.85], UNDECIDED, "supported by all seeds, undecided without seed 0 of sum"),
    ],
)
def test_a_verdict_is_that_of_the_rules_if_every_seed_is_there_and_none_alone_makes_it(
    kept: Callable[..., Stored], delta: list[float], total: list[float], answer: str, why: str
) -> None:
    claim = a_claim()
    found = verdict(claim, kept(claim, {"delta": delta, "sum": total}))
    assert (found.answer, found.why) == (answer, why)
    assert found.complete is (len(delta) == len(total) == 3)


@pytest.mark.parametrize("mark", ["undertrained", "lr_edge", "lr_untried"])
def test_what_is_marked_decides_nothing(kept: Callable[..., Stored], mark: str) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]})
    found = verdict(claim, kept(claim, {"sum": [0.5, 0.5]}, marks=[mark]))
    assert (found.answer, found.why) == (UNDECIDED, f"sum: 1 of 3 seeds count (2 {mark})")
    assert found.complete is (mark != "undertrained"), "to run it again would change nothing, but longer"


def test_where_training_was_too_short_all_is_asked_again_with_twice_as_much(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9]})
    once = kept(claim, {"sum": [0.1, 0.1, 0.5]}, marks=["undertrained"])
    assert (verdict(claim, once).short, budget(claim, once, "cpu")) == (True, 2)
    (wanted,) = parts(claim, longer=2)
    assert {cell.protocol.tokens for cell in wanted.cells} == {2 * cell.protocol.tokens for cell in parts(claim)[0].cells}

    partly = kept(claim, {"delta": [0.95, 0.95, 0.95]}, longer=2)
    assert verdict(claim, partly).why == "with 2 times the training sum: 3 of 3 seeds missing"
    assert (verdict(claim, partly).short, budget(claim, partly, "cpu")) == (False, 2)
    whole = kept(claim, {"sum": [0.6, 0.6, 0.6]}, longer=2)
    twice = verdict(claim, whole)
    assert (twice.answer, twice.complete, twice.rulings[0].figures["sum"].value) == (SUPPORTED, True, 0.6)
    assert "On cpu, with 2 times the training, supported:" in detail(twice, whole)
    assert plain(twice)["devices"][0]["longer"] == 2
    assert len(twice.ids(twice.rulings[0], whole)) == 6


def test_nor_is_more_than_four_times_the_training_asked_for(kept: Callable[..., Stored]) -> None:
    claim = a_claim({"set": {"model.d_model": 16, "protocol.examples": 64, "protocol.epochs": 3}})
    for longer in (1, 2, 4):
        stored = kept(claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.1, 0.1, 0.5]}, longer=longer, marks=["undertrained"])
    found = verdict(claim, stored)
    assert (found.answer, found.short, found.complete, budget(claim, stored, "cpu")) == (UNDECIDED, False, True, 4)
    assert {cell.protocol.epochs for cell in parts(claim, longer=4)[0].cells} == {12}


def test_the_best_of_seeds_counts_whatever_its_marks(kept: Callable[..., Stored]) -> None:
    claim = a_claim(measure={"over": "best"})
    found = verdict(claim, kept(claim, {"delta": [0.2, 0.9, 0.3], "sum": [0.5, 0.6, 0.7]}, marks=["undertrained"]))
    assert (found.answer, found.rulings[0].figures["delta"].value) == (SUPPORTED, 0.9)


def test_runs_that_failed_are_no_figure_and_those_that_diverged_are_at_chance(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]})
    failed = verdict(claim, kept(claim, {"sum": [0.5]}, status="oom"))
    assert failed.why == "sum: 2 of 3 seeds count (1 oom)"
    diverged = verdict(claim, kept(claim, {"sum": [0.5, 0.5, 0.5]}, status="diverged", metrics={}, curve=[]))
    assert (diverged.answer, diverged.rulings[0].figures["sum"].value) == (SUPPORTED, 0.25)
    other = a_claim(measure={"of": "nll"})
    assert "sum: 0 of 3 seeds count (3 diverged)" in verdict(other, kept(other, {})).why


def test_two_kinds_of_devices_never_decide_together(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9]}, device="cpu")
    apart = verdict(claim, kept(claim, {"sum": [0.5, 0.5, 0.5]}, device="NVIDIA H200"))
    assert (apart.answer, apart.why) == (UNDECIDED, "NVIDIA H200: delta: 3 of 3 seeds missing; cpu: sum: 3 of 3 seeds missing")
    alone = verdict(claim, kept(claim, {"delta": [0.9, 0.9, 0.9]}, device="NVIDIA H200"))
    assert (alone.answer, [ruling.answer for ruling in alone.rulings]) == (SUPPORTED, [SUPPORTED, UNDECIDED])
    against = verdict(claim, kept(claim, {"sum": [0.95, 0.95, 0.95]}, device="cpu"))
    assert (against.answer, against.why) == (UNDECIDED, "devices disagree: supported on NVIDIA H200, refuted on cpu")


def test_results_of_other_settings_do_not_count(kept: Callable[..., Stored]) -> None:
    claim, other = a_claim(), a_claim({"set": {"model.d_model": 32}})
    found = verdict(claim, kept(other, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]}))
    assert (found.answer, found.why, found.rulings) == (UNDECIDED, "nothing of it was run", ())


def test_a_look_at_what_may_be_there_misses_nothing(kept: Callable[..., Stored]) -> None:
    """The numbers that all cells of a suite share tell; what a grid sets, or is written otherwise, does not."""
    claim = a_claim({"set": {"model.d_model": 16, "task.vocab_size": 32, "task.seq_len": "32"}, "grid": {"task.kv_pairs": [2]}})
    stored = kept(claim, {"delta": [0.9]})
    suite = claim.grids["recall"].suite
    assert stored.any(suite, "deltanet", "cpu")
    assert not stored.any(suite, "linear_attention", "cpu")
    assert not stored.any(suite, "deltanet", "NVIDIA H200")
    for change, there in (({"task.vocab_size": 64}, False), ({"task.seq_len": "64"}, True)):
        assert stored.any(suite.model_copy(update={"set": {**suite.set, **change}}), "deltanet", "cpu") is there
    assert stored.any(suite.model_copy(update={"grid": {"task.kv_pairs": [4]}}), "deltanet", "cpu")


def test_the_page_has_claims_that_rest_on_what_is_stored(kept: Callable[..., Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    claim = a_claim()
    table = replace(claim, id="C2", measures={"delta": claim.measures["delta"].model_copy(update={"model": ""})}, supported=None, refuted=None)
    monkeypatch.setattr(shown, "claims", lambda: {"C1": claim, "C2": table})
    stored = kept(claim, {"delta": [0.9, 0.92, 0.94], "sum": [0.5, 0.6, 0.7]})
    (one,) = shown.claimed(stored)
    assert one.row == ["C1", "supported", "the delta rule recalls more", "delta 0.920 ± 0.020, sum 0.600 ± 0.100"]
    assert one.about["Supported"] == "delta - sum >= 0.2"
    ((where, figures),) = one.figures
    assert (where, list(figures["figure"])) == ("On cpu, supported", ["0.920 ± 0.020", "0.600 ± 0.100"])
    assert one.ids == set(stored.results)
    assert shown.claimed(Stored([])) == []


def test_of_a_search_those_at_the_rate_that_it_finds_count(kept: Callable[..., Stored]) -> None:
    claim = a_claim({"search": True})
    search = default_search()
    at = {name: of_measure(claim, name) for name in claim.measures}

    def told(rate: int, scores: Sequence[float]) -> dict[str, Result]:
        made = []
        for cells in at.values():
            protocol = cells[0].protocol.model_copy(update={"lr": learning_rate(rate)})
            tuning = [replace(cells[0], protocol=protocol, seed=seed, purpose="tuning") for seed in search.seeds]
            made += [a_result(cell, 0.5 if rate == -6 else 0.3, "cpu") for cell in tuning]
            made += [a_result(replace(cell, protocol=protocol), score, "cpu") for cell, score in zip(cells, scores, strict=False)]
        return {result["id"]: result for result in made}

    stored = kept(claim, {})
    for rate in search.grid:
        stored.results |= told(rate, [0.2, 0.3, 0.4] if rate == -6 else [0.9, 0.9, 0.9])
    found = verdict(claim, stored)
    assert list(found.rulings[0].figures["delta"].values.values()) == [0.2, 0.3, 0.4]
    assert found.why == "refuted by all seeds, undecided without seed 0 of delta"
    assert len(found.ids(found.rulings[0], stored)) == 6
    for left in [name for name, result in stored.results.items() if result["purpose"] == "tuning"][:1]:
        del stored.results[left]
    assert "3 of 3 seeds missing" in verdict(claim, stored).why


def test_a_claim_that_waits_says_for_what(kept: Callable[..., Stored]) -> None:
    waiting = a_claim(needs={"models": ["no_such"], "other": ["a lens"]})
    found = verdict(waiting, kept(waiting, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]}))
    assert (found.answer, found.why, found.complete) == (UNDECIDED, "needs model no_such; a lens", False)
    empty = a_claim(measures={}, supported="", refuted="")
    assert verdict(empty, kept(empty, {})).why == "needs cells that decide it: none are written"


def test_what_needs_no_training_is_decided_at_once(kept: Callable[..., Stored]) -> None:
    values = {"title": "t", "untrained": {"blend": {"of": "blend", "rules": ["sum", "normalised sum"]}}, "claims": {"C1": CLAIM}}
    measures = {"delta": {"where": {"rule": "sum"}, "of": "recalled"}, "sum": {"where": {"rule": "normalised sum"}, "of": "recalled"}}
    (claim,) = section({**values, "claims": {"C1": {**CLAIM, "measures": measures}}}, where="a.yaml")
    found = verdict(claim, kept(claim, {}))
    assert (found.answer, found.rulings[0].device, found.rulings[0].figures["sum"].value) == (SUPPORTED, NOTHING_TRAINED, pytest.approx(7.5))
    assert parts(claim) == []


def test_rules_that_both_hold_or_have_no_value_decide_nothing() -> None:
    figures = {"delta": Figure({0: 0.5, 1: 0.5, 2: 0.5}), "sum": Figure({0: 0.0, 1: 0.0, 2: 0.0})}
    assert decide(a_claim(supported="delta > sum", refuted="delta > 0.1 + sum"), figures) == (UNDECIDED, "both its rules hold, so that one of them is wrong")
    assert decide(a_claim(supported="delta / sum > 2", refuted="delta <= sum"), figures) == (UNDECIDED, "something is divided by zero")


def slice_(**values: Sequence[float]) -> dict[str, Any]:
    """Sums and weights of 10 places each."""
    return {
        "at": list(range(len(next(iter(values.values()))))),
        **{name: {"sum": [10 * v for v in these], "weight": [10] * len(these)} for name, these in values.items()},
    }


def test_figures_look_at_metrics_slices_tests_steps_and_settings() -> None:
    tests = {"task.min_length": 4, "task.max_length": 8}
    (claim,) = section(
        {
            "title": "t",
            "cells": {"parity": {"tasks": [{"task": "parity", "set": tests, "test": [{"max_length": 8}, {"max_length": 16}]}], "seeds": "0-2"}},
            "claims": {"C1": CLAIM},
        },
        where="a.yaml",
    )
    cells = of_measure(claim, "delta")
    parts_of = [
        {"settings": test.settings.model_dump(mode="json"), "chance": 0.5, "metrics": {"accuracy": score}, "slices": {"length": slice_(accuracy=values)}}
        for test, score, values in zip(cells[0].tested_on, (0.9, 0.7), ([1.0, 1.0, 0.8], [1.0, 0.9, 0.2, 0.95]), strict=True)
    ]
    curve = [{"accuracy": 0.5, "step": 10}, {"accuracy": 0.9, "step": 20}, {"accuracy": 1.0, "step": 30}]
    found = {cell.id: a_result(cell, 0.8, "cpu", tests=parts_of, curve=curve, chance=0.5) for cell in cells}

    def read(**measure: Any) -> float:
        return figure(claim.measures["delta"].model_copy(update=measure), cells, found).value

    assert read() == pytest.approx(0.8)
    assert read(of="scaled") == pytest.approx(0.6)
    assert read(test={"max_length": 16}) == pytest.approx(0.7)
    assert read(test={"max_length": 16}, of="scaled") == pytest.approx(0.4)
    assert read(test={"max_length": 16}, at={"length": 2}) == pytest.approx(0.2)
    assert read(test={"max_length": 16}, at={"length": "1-2"}) == pytest.approx(0.55)
    assert read(at={"length": 2}) == pytest.approx((0.8 + 0.2) / 2), "of all tests together"
    assert read(of="steps to 0.9") == 20
    assert read(test={"max_length": 16}, along="length", reaching=0.9) == 1, "and not 3, beyond a place that failed"
    assert read(test={"max_length": 8}, along="length", reaching=0.9) == 1
    never = {name: result | {"curve": curve[:1]} for name, result in found.items()}
    assert figure(claim.measures["delta"].model_copy(update={"of": "steps to 0.9"}), cells, never).value == math.inf


def test_the_largest_setting_that_reaches_so_much(kept: Callable[..., Stored]) -> None:
    claim = a_claim({"grid": {"task.kv_pairs": [2, 4, 8]}}, measure={"along": "task.kv_pairs", "reaching": 0.9})
    cells = of_measure(claim, "delta")
    scores = {2: 1.0, 4: 0.95, 8: 0.5}
    found = {cell.id: a_result(cell, scores[cell.task.settings.kv_pairs], "cpu") for cell in cells}
    assert figure(claim.measures["delta"], cells, found) == Figure({0: 4.0, 1: 4.0, 2: 4.0})
    del found[cells[0].id]
    assert figure(claim.measures["delta"], cells, found).missing == 1
    nothing = {name: result | {"metrics": {"accuracy": 0.1}} for name, result in found.items()}
    assert figure(claim.measures["delta"], cells, nothing).value == 0


def test_the_mean_of_several_tasks_is_a_figure_for_every_seed(kept: Callable[..., Stored]) -> None:
    claim = a_claim({"tasks": ["mqar", "induction"]}, measure={"across": "tasks"})
    of_both = kept(claim, {"delta": [0.8, 0.9, 0.85, 0.9, 0.9, 1.0], "sum": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]})
    found = verdict(claim, of_both)
    figures = found.rulings[0].figures
    assert list(figures["delta"].values.values()) == pytest.approx([0.85, 0.875, 0.95])
    assert list(figures["sum"].values.values()) == pytest.approx([0.15, 0.35, 0.55])
    assert found.answer == SUPPORTED
    assert "| deltanet, accuracy, mean of tasks |" in " ".join("\n".join(detail(found, of_both)).split())
    (first, *_), alone = of_measure(claim, "delta"), dict(of_both.results)
    del of_both.results[first.id]
    assert verdict(claim, of_both).why == "delta: 1 of 3 seeds missing"
    of_both.results = alone
    of_both.results[first.id]["marks"] = ["undertrained"]
    assert verdict(claim, of_both).why == "delta: 2 of 3 seeds count (1 undertrained)"
    assert verdict(claim, of_both).rulings[0].figures["delta"].aside[0].value == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({0: 0.5, 1: 0.6, 2: 0.7}, "0.600 ± 0.100"),
        ({0: 0.5}, "0.500"),
        ({0: 1500.0, 1: 1500.0, 2: 3000.0}, "2,000"),
        ({0: 20.0, 1: math.inf, 2: 20.0}, "never"),
        ({}, "–"),
    ],
)
def test_a_figure_in_words(values: dict[int, float], words: str) -> None:
    assert str(Figure(values)) == words


def test_what_was_never_reached_is_a_word_in_json(kept: Callable[..., Stored]) -> None:
    claim = a_claim(measure={"of": "steps to 0.9"})
    kept(claim, {"delta": [0.9, 0.9, 0.5]})
    told = plain(verdict(claim, kept(claim, {"sum": [0.9, 0.5]}, marks=["undertrained"])))["devices"][0]["figures"]
    assert told["delta"] == {"value": "never", "spread": 0.0, "seeds": {"0": 7.0, "1": 7.0, "2": "never"}, "aside": {}, "missing": 0}
    assert told["sum"]["aside"] == {"0": {"why": "undertrained", "value": 7.0}, "1": {"why": "undertrained", "value": "never"}}
    json.dumps(told, allow_nan=False)


def a_timed_claim(length: int = 64, **changes: Any) -> Claim:
    """That DeltaNet trains at half the speed of GLA, or faster."""
    text = {
        "measure": {"cells": "narrow", "where": {"length": length}, "of": TRAINING}, "measures": {"delta": "deltanet", "gla": "gla"},
        "supported": "delta / gla >= 0.5", "refuted": "delta / gla < 0.5",
    }  # fmt: skip
    values = {"title": "t", "timed": {"narrow": {"preset": "tiny", "lengths": [length]}}, "claims": {"C1": CLAIM | text | changes}}
    (claim,) = section(values, where="a.yaml")
    return claim


def a_timing(claim: Claim, name: str, seconds: Sequence[float], kind: str, **more: Any) -> Result:
    """With a batch of 4,096 tokens taking so many seconds: the median, and the fifths. On a GPU a caller waits ten times as long as the device takes."""
    case = untimed(claim, Stored([]), device="cpu")[list(claim.measures).index(name)]
    bench = {**case.identity, "device": kind, "precision": "fp32" if kind == "cpu" else "bf16"}
    taken = {"median": seconds[0], "low": seconds[1], "high": seconds[2], "calls": 20}
    slower = {how: value if how == "calls" else 10 * value for how, value in taken.items()}
    side = {"as_called": taken} if kind == "cpu" else {"as_called": slower, "replayed": taken}
    environment = {"device": {"name": kind}, "threads": 1, "commit": "ab", "dirty": False, "packages": {}}
    return {
        "id": digest(bench), "schema": bench["schema"], "kind": SPEED, "label": case.label, "bench": bench, "status": "ok", "reason": None, "marks": [],
        "sides": {"linbench": side}, "environment": environment,
    } | more  # fmt: skip


@pytest.fixture
def timed(tmp_path: Path) -> Callable[..., Stored]:
    """A store with such timings by measure."""

    def keep(claim: Claim, seconds: dict[str, Sequence[float]], kind: str = "cpu", **more: Any) -> Stored:
        store = Store(tmp_path)
        store.prepare()
        for name, these in seconds.items():
            store.put(a_timing(claim, name, these, kind, **more))
        return Stored([store])

    return keep


STEADY = (1.0, 0.99, 1.01)


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA H200"])
@pytest.mark.parametrize(
    ("delta", "gla", "answer", "why"),
    [
        (STEADY, STEADY, SUPPORTED, ""),
        ((3.0, 2.97, 3.03), STEADY, REFUTED, ""),
        ((1.9, 1.8, 2.1), STEADY, UNDECIDED, "supported by all medians, refuted with delta at its lower fifth"),
        ((2.1, 1.9, 2.2), STEADY, UNDECIDED, "refuted by all medians, supported with delta at its upper fifth"),
        ((1.9, 1.9, 1.9), (1.0, 0.9, 1.0), UNDECIDED, "supported by all medians, refuted with gla at its upper fifth"),
        (STEADY, None, UNDECIDED, "gla: not timed"),
        (None, None, UNDECIDED, "nothing of it was run"),
    ],
)
def test_of_layers_timed_a_verdict_is_that_of_medians_if_no_fifth_makes_another(
    timed: Callable[..., Stored], kind: str, delta: Sequence[float] | None, gla: Sequence[float] | None, answer: str, why: str
) -> None:
    """On a GPU by what the device takes alone, on a CPU by what a caller waits."""
    claim = a_timed_claim()
    found = verdict(claim, timed(claim, {name: seconds for name, seconds in (("delta", delta), ("gla", gla)) if seconds}, kind))
    assert (found.answer, found.why) == (answer, why)
    assert [ruling.device for ruling in found.rulings] == ([kind] if delta or gla else [])
    if delta:
        assert found.rulings[0].figures["delta"].value == pytest.approx(4096 / delta[0])


def test_what_was_timed_beside_others_is_to_be_timed_again_and_at_the_limit_of_power_not(timed: Callable[..., Stored]) -> None:
    claim = a_timed_claim()
    throttled = timed(claim, {"delta": STEADY, "gla": STEADY}, marks=["throttled"])
    assert verdict(claim, throttled).answer == SUPPORTED
    delta = verdict(claim, throttled).rulings[0].figures["delta"]
    assert (str(delta), delta.out_of) == ("4,096 ± 41", "20 calls, throttled")
    assert untimed(claim, throttled, device="cpu") == []
    busy = timed(claim, {"gla": STEADY}, marks=["busy", "throttled"])
    found = verdict(claim, busy)
    assert (found.answer, found.why, found.complete) == (UNDECIDED, "gla: busy", False)
    assert [case.label for case in untimed(claim, busy, device="cpu")] == ["gla"]
    assert outlook(claim, busy, device="cpu")[:2] == (0, 0)
    assert outlook(claim, busy, device="cpu")[3:] == (2, 1)
    few = timed(claim, {"gla": STEADY}, sides={"linbench": {"as_called": {"median": 1.0, "low": 1.0, "high": 1.0, "calls": 4}}})
    found = verdict(claim, few)
    assert (found.answer, found.why, found.complete) == (UNDECIDED, "gla: fewer than 5 calls", False)


def test_what_could_not_be_timed_or_replayed_decides_nothing_and_is_not_tried_again(timed: Callable[..., Stored]) -> None:
    claim = a_timed_claim()
    timed(claim, {"delta": STEADY})
    found = verdict(claim, timed(claim, {"gla": STEADY}, status="oom", sides={}))
    assert (found.answer, found.why, found.complete) == (UNDECIDED, "gla: oom", True)
    timed(claim, {"delta": STEADY}, kind="NVIDIA H200")
    only_called = {"linbench": {"as_called": {"median": 1.0, "low": 1.0, "high": 1.0, "calls": 5}, "note": "not captured"}}
    stored = timed(claim, {"gla": STEADY}, kind="NVIDIA H200", sides=only_called)
    assert verdict(claim, stored).why == "NVIDIA H200: gla: could not be replayed; cpu: gla: oom"


def test_speeds_at_other_shapes_do_not_count(timed: Callable[..., Stored]) -> None:
    claim, other = a_timed_claim(), a_timed_claim(length=128)
    stored = timed(other, {"delta": STEADY, "gla": STEADY})
    assert verdict(claim, stored).why == "nothing of it was run"
    assert [len(untimed(one, stored, device="cpu")) for one in (claim, other)] == [2, 0]


def test_a_speed_as_json(timed: Callable[..., Stored]) -> None:
    claim = a_timed_claim()
    told = plain(verdict(claim, timed(claim, {"delta": (2.0, 1.0, 4.0)}, marks=["throttled"])))["devices"][0]["figures"]
    assert told["delta"] == {"value": 2048, "spread": 1536, "low": 1024, "high": 4096, "calls": 20, "marks": ["throttled"], "missing": 0}
    assert told["gla"] == {"value": None, "spread": None, "low": None, "high": None, "calls": 0, "marks": [], "missing": 1}


def test_the_spread_of_a_speed_may_stand_in_a_rule() -> None:
    figures = {"delta": Speed(Rate(100.0, 90.0, 110.0)), "gla": Speed(Rate(50.0, 49.0, 51.0))}
    assert decide(a_timed_claim(supported="delta - gla > 3 * std(delta)", refuted="delta <= gla"), figures) == (SUPPORTED, "")
    unsure = decide(a_timed_claim(supported="delta - gla > 4.5 * std(delta)", refuted="delta <= gla"), figures)
    assert unsure == (UNDECIDED, "supported by all medians, undecided with delta at its lower fifth")


def test_the_picture_that_shows_speeds_is_named(timed: Callable[..., Stored], tmp_path: Path) -> None:
    claim = a_timed_claim(figure="replayed")
    stored = timed(claim, {"delta": STEADY, "gla": STEADY}, kind="NVIDIA H200")
    picture = tmp_path / "figures" / "speed-train-replayed-d64-bf16-4096-tokens-a-batch-native-nvidia-h200.png"
    found = verdict(claim, stored)
    ids = found.ids(found.rulings[0], stored)
    assert stored.pictures(ids, "replayed") == []
    picture.parent.mkdir()
    picture.touch()
    assert f"\nShown in `{picture}`." in detail(found, stored)
    assert f"\n![{picture.stem}](../figures/{picture.name})" in detail(found, stored, beside=tmp_path / "docs")
    assert line(found)[3].startswith("delta ")

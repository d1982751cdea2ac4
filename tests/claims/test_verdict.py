"""Verdicts on made-up results."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.claims import report_section as shown
from linbench.claims.cells import CellSource
from linbench.claims.claim import Claim, read_section
from linbench.claims.page import detail, line, to_json
from linbench.claims.remaining import remaining_work
from linbench.claims.seed_evidence import SeedEvidence
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import NOTHING_TRAINED, REFUTED, SUPPORTED, UNDECIDED, decide, verdict
from linbench.experiments.learning_rates import default_search, learning_rate
from tests.helpers.claims import CLAIM, a_claim, a_result, cells_of


@pytest.mark.parametrize(
    ("delta", "total", "answer"),
    [
        ([0.9, 0.92, 0.94], [0.5, 0.6, 0.7], SUPPORTED),
        ([0.5, 0.5, 0.5], [0.6, 0.7, 0.8], REFUTED),
        ([0.7, 0.7, 0.7], [0.6, 0.6, 0.6], UNDECIDED),
        ([0.9, 0.9], [0.5, 0.5, 0.5], UNDECIDED),
        ([], [0.5, 0.5], UNDECIDED),
        ([0.9], [0.5], UNDECIDED),
        ([], [], UNDECIDED),
        ([1.0, 1.0, 0.4], [0.5, 0.55, 0.6], UNDECIDED),
        ([0.9, 0.9, 0.9], [0.3, 0.85, 0.85], UNDECIDED),
    ],
)
def test_a_verdict_is_that_of_the_rules_if_every_seed_is_there_and_none_alone_makes_it(
    kept: Callable[..., Stored],
    snapshot: SnapshotAssertion,
    delta: list[float],
    total: list[float],
    answer: str,
) -> None:
    claim = a_claim()
    found = verdict(claim, kept(claim, {"delta": delta, "sum": total}))
    assert found.outcome == answer
    assert found.reason == snapshot
    assert found.complete is (len(delta) == len(total) == 3)


@pytest.mark.parametrize("mark", ["undertrained", "lr_edge", "lr_untried"])
def test_what_is_marked_decides_nothing(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion, mark: str
) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]})
    found = verdict(claim, kept(claim, {"sum": [0.5, 0.5]}, marks=[mark]))
    assert found.outcome == UNDECIDED
    assert found.reason == snapshot
    assert found.complete is (mark != "undertrained"), "to run it again would change nothing, but longer"


def test_where_training_was_too_short_all_is_asked_again_with_twice_as_much(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9]})
    once = kept(claim, {"sum": [0.1, 0.1, 0.5]}, marks=["undertrained"])
    assert (verdict(claim, once).needs_training, verdict(claim, once).next_budget("cpu")) == (True, 2)
    asked = {cell.protocol.tokens for cell in cells_of(claim, "sum", budget=2)}
    assert asked == {2 * cell.protocol.tokens for cell in cells_of(claim, "sum")}

    partly = kept(claim, {"delta": [0.95, 0.95, 0.95]}, budget=2)
    assert verdict(claim, partly).reason == snapshot(name="partly")
    assert (verdict(claim, partly).needs_training, verdict(claim, partly).next_budget("cpu")) == (False, 2)
    whole = kept(claim, {"sum": [0.6, 0.6, 0.6]}, budget=2)
    twice = verdict(claim, whole)
    assert (twice.outcome, twice.complete, twice.rulings[0].evidence["sum"].value) == (SUPPORTED, True, 0.6)
    assert [told for told in detail(twice, whole) if told.startswith("On ")] == snapshot(name="headings")
    assert to_json(twice)["devices"][0]["longer"] == 2
    assert len(twice.result_ids(twice.rulings[0], whole)) == 6


def test_where_nothing_has_come_to_what_both_rules_ask_for_all_is_asked_again_with_twice_as_much(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim(supported="delta >= 0.9 and sum <= 0.5", refuted="sum > 0.5 and delta >= 0.9")
    assert [premise.text for premise in claim.premises] == ["delta >= 0.9"]
    once = verdict(claim, kept(claim, {"delta": [0.3, 0.3, 0.3], "sum": [0.6, 0.6, 0.6]}))
    assert once.outcome == UNDECIDED
    assert once.reason == snapshot
    assert (once.needs_training, once.complete, once.next_budget("cpu")) == (True, False, 2)
    twice = verdict(claim, kept(claim, {"delta": [0.95, 0.95, 0.95], "sum": [0.6, 0.6, 0.6]}, budget=2))
    assert (twice.outcome, twice.complete, twice.next_budget("cpu")) == (REFUTED, True, 2)
    assert verdict(
        a_claim(), kept(a_claim(), {"delta": [0.3, 0.3, 0.3], "sum": [0.25, 0.25, 0.25]})
    ).complete, "no premise: more training would decide"
    other = a_claim(
        supported="delta >= 0.9 and sum <= 0.5",
        refuted="sum > 0.5 and delta >= 0.9",
        measures={"delta": "kda", "sum": "gla"},
    )
    for budget in (1, 2, 4, 8):
        stored = kept(other, {"delta": [0.3, 0.3, 0.3], "sum": [0.6, 0.6, 0.6]}, budget=budget)
    assert (verdict(other, stored).complete, verdict(other, stored).next_budget("cpu")) == (True, 8)


@pytest.mark.parametrize(
    ("delta", "total", "answer"),
    [
        ([0.9, 0.9, 0.9], [0.95, 0.99, 0.999], REFUTED),
        ([0.9, 0.9, 0.9], [0.95, 0.99, 0.5], UNDECIDED),
        ([0.9, 0.9, 0.9], [0.1, 0.1, 0.1], UNDECIDED),
        ([1.0, 1.0, 0.9], [1.0, 0.9, 0.95], UNDECIDED),
    ],
)
def test_a_verdict_stands_where_more_training_cannot_change_it(
    kept: Callable[..., Stored],
    snapshot: SnapshotAssertion,
    delta: list[float],
    total: list[float],
    answer: str,
) -> None:
    claim = a_claim()
    kept(claim, {"delta": delta})
    found = verdict(claim, kept(claim, {"sum": total}, marks=["undertrained"]))
    assert (found.outcome, found.complete, found.needs_training) == (
        answer,
        answer != UNDECIDED,
        answer == UNDECIDED,
    )
    assert found.next_budget("cpu") == (1 if found.complete else 2)
    if answer == UNDECIDED:
        assert found.reason == snapshot
    else:
        assert str(found.rulings[0].evidence["sum"]) == "0.980 to 1.000"
        assert to_json(found)["devices"][0]["figures"]["sum"]["between"] == [pytest.approx(0.97966666), 1.0]


def test_what_has_no_best_or_is_marked_otherwise_is_between_no_numbers(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    loss = a_claim(measure={"of": "nll"})
    kept(loss, {"delta": [0.9, 0.9, 0.9]})
    assert (
        verdict(loss, kept(loss, {"sum": [0.95, 0.99, 0.999]}, marks=["undertrained"])).outcome == UNDECIDED
    )
    claim = a_claim()
    assert verdict(claim, kept(claim, {"sum": [0.95, 0.99, 0.999]}, marks=["lr_edge"])).reason == snapshot


def test_another_device_begins_with_the_training_that_one_has_come_to(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    for budget in (1, 2):
        stored = kept(
            claim,
            {"delta": [0.9, 0.9, 0.9], "sum": [0.1, 0.1, 0.5]},
            budget=budget,
            marks=["undertrained"],
            device="NVIDIA H200",
        )
    assert (verdict(claim, stored).next_budget("cpu"), verdict(claim, stored).next_budget("NVIDIA H200")) == (
        4,
        4,
    )
    kept(claim, {"delta": [0.9, 0.9, 0.9]}, budget=4)
    partly = verdict(claim, kept(claim, {"sum": [0.5, 0.5]}, budget=4))
    assert (partly.outcome, partly.complete, partly.next_budget("cpu")) == (UNDECIDED, False, 4)
    begun = verdict(claim, kept(claim, {"sum": [0.5, 0.5, 0.5]}, budget=4))
    assert (begun.outcome, [ruling.budget for ruling in begun.rulings]) == (SUPPORTED, [2, 4])
    before = verdict(claim, kept(claim, {"delta": [0.5, 0.5, 0.5], "sum": [0.9, 0.9, 0.9]}))
    assert (before.outcome, before.next_budget("cpu")) == (REFUTED, 1), "what is enough is looked at first"


def test_nor_is_more_than_eight_times_the_training_asked_for(kept: Callable[..., Stored]) -> None:
    claim = a_claim({"set": {"model.d_model": 16, "protocol.examples": 64, "protocol.epochs": 3}})
    for budget in (1, 2, 4, 8):
        stored = kept(
            claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.1, 0.1, 0.5]}, budget=budget, marks=["undertrained"]
        )
    found = verdict(claim, stored)
    assert (found.outcome, found.needs_training, found.complete, found.next_budget("cpu")) == (
        UNDECIDED,
        False,
        True,
        8,
    )
    assert {cell.protocol.epochs for cell in cells_of(claim, "sum", budget=8)} == {24}


def test_the_best_of_seeds_is_known_as_far_as_its_marks_let_it(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim(measure={"over": "best"})
    found = verdict(claim, kept(claim, {"delta": [0.2, 0.9, 0.3], "sum": [0.5, 0.6, 0.7]}))
    assert (
        found.outcome,
        found.rulings[0].evidence["delta"].value,
        str(found.rulings[0].evidence["delta"]),
    ) == (SUPPORTED, 0.9, "0.900")
    short = verdict(claim, kept(claim, {"sum": [0.5, 0.6, 0.7]}, marks=["undertrained"]))
    assert short.outcome == UNDECIDED, "any could have become the best"
    assert short.reason == snapshot
    assert tuple(short.rulings[0].evidence["sum"].interval) == (0.7, 1.0)
    other = verdict(
        claim, kept(claim, {"delta": [0.1, 0.1, 0.1], "sum": [0.1, 0.95, 0.1]}, marks=["undertrained"])
    )
    assert other.outcome == UNDECIDED
    above = a_claim(measure={"over": "best"}, supported="sum >= 0.9", refuted="sum < 0.5")
    assert (
        verdict(above, kept(above, {"sum": [0.1, 0.95, 0.1]}, marks=["undertrained"])).outcome == SUPPORTED
    ), "more training makes no best worse"


def test_where_a_claim_says_so_the_best_of_seeds_counts_whatever_its_marks(
    kept: Callable[..., Stored],
) -> None:
    claim = a_claim(measure={"over": "best", "marked": True})
    found = verdict(
        claim, kept(claim, {"delta": [0.2, 0.9, 0.3], "sum": [0.5, 0.6, 0.7]}, marks=["undertrained"])
    )
    assert (found.outcome, found.rulings[0].evidence["delta"].value) == (SUPPORTED, 0.9)


def test_runs_that_failed_are_no_figure_and_those_that_diverged_are_at_chance(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]})
    failed = verdict(claim, kept(claim, {"sum": [0.5]}, status="oom"))
    assert failed.reason == snapshot(name="oom")
    diverged = verdict(claim, kept(claim, {"sum": [0.5, 0.5, 0.5]}, status="diverged", metrics={}, curve=[]))
    assert (diverged.outcome, diverged.rulings[0].evidence["sum"].value) == (SUPPORTED, 0.25)
    other = a_claim(measure={"of": "nll"})
    assert verdict(other, kept(other, {})).reason == snapshot(name="diverged")


def test_two_kinds_of_devices_never_decide_together(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9]}, device="cpu")
    apart = verdict(claim, kept(claim, {"sum": [0.5, 0.5, 0.5]}, device="NVIDIA H200"))
    assert apart.outcome == UNDECIDED
    assert apart.reason == snapshot(name="apart")
    alone = verdict(claim, kept(claim, {"delta": [0.9, 0.9, 0.9]}, device="NVIDIA H200"))
    assert (alone.outcome, [ruling.outcome for ruling in alone.rulings]) == (
        SUPPORTED,
        [SUPPORTED, UNDECIDED],
    )
    against = verdict(claim, kept(claim, {"sum": [0.95, 0.95, 0.95]}, device="cpu"))
    assert against.outcome == UNDECIDED
    assert against.reason == snapshot(name="against")


def test_results_of_other_settings_do_not_count(kept: Callable[..., Stored]) -> None:
    claim, other = a_claim(), a_claim({"set": {"model.d_model": 32}})
    found = verdict(claim, kept(other, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]}))
    assert (found.outcome, found.reason, found.rulings) == (UNDECIDED, "not run yet", ())


def test_a_look_at_what_may_be_there_misses_nothing(kept: Callable[..., Stored]) -> None:
    """The numbers that all cells of a suite share tell; what a grid sets, or is written otherwise, does
    not."""
    claim = a_claim(
        {
            "set": {"model.d_model": 16, "task.vocab_size": 32, "task.seq_len": "32"},
            "grid": {"task.kv_pairs": [2]},
        }
    )
    stored = kept(claim, {"delta": [0.9]})
    source = claim.measures["delta"].source
    assert isinstance(source, CellSource)
    suite = source.suite
    assert stored.any(suite, "deltanet", "cpu")
    assert not stored.any(suite, "linear_attention", "cpu")
    assert not stored.any(suite, "deltanet", "NVIDIA H200")
    for change, there in (({"task.vocab_size": 64}, False), ({"task.seq_len": "64"}, True)):
        assert (
            stored.any(suite.model_copy(update={"set": {**suite.set, **change}}), "deltanet", "cpu") is there
        )
    assert stored.any(suite.model_copy(update={"grid": {"task.kv_pairs": [4]}}), "deltanet", "cpu")


def test_the_page_has_claims_that_rest_on_what_is_stored(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = a_claim()
    table = replace(a_table_claim(), id="C2")
    monkeypatch.setattr(shown, "claims", lambda: {"C1": claim, "C2": table})
    stored = kept(claim, {"delta": [0.9, 0.92, 0.94], "sum": [0.5, 0.6, 0.7]})
    (one,) = shown.claim_sections(stored)
    assert one.row == snapshot
    assert one.about["Supported if"] == CLAIM["supported"]
    ((where, figures),) = one.figures
    assert (where, list(figures["value"])) == ("On cpu, supported", ["0.920 ± 0.020", "0.600 ± 0.100"])
    assert one.ids == set(stored.results)
    assert shown.claim_sections(Stored([])) == []


def a_table_claim() -> Claim:
    """Return a claim that needs no training."""
    measures = {
        "delta": {"where": {"rule": "sum"}, "of": "recalled"},
        "sum": {"where": {"rule": "normalised sum"}, "of": "recalled"},
    }
    values = {
        "title": "t",
        "untrained": {"blend": {"of": "blend", "rules": ["sum", "normalised sum"]}},
        "claims": {"C1": {**CLAIM, "measures": measures}},
    }
    (claim,) = read_section(values, where="a.yaml")
    return claim


def searched(
    claim: Claim, stored: Stored, seeds: Sequence[int], delta: Sequence[float], total: Sequence[float]
) -> Stored:
    """Return results of a search on these tuning seeds that finds 1e-3.

    The measures have these scores there, and .9 at other rates.
    """
    best = -12
    for n in (*default_search().grid, best - 1, best + 1):
        for name, scores in (("delta", delta), ("sum", total)):
            cells = cells_of(claim, name)
            protocol = cells[0].protocol.model_copy(update={"lr": learning_rate(n)})
            tuning = [replace(cells[0], protocol=protocol, seed=seed, purpose="tuning") for seed in seeds]
            made = [a_result(cell, 0.5 if n == best else 0.3, "cpu") for cell in tuning]
            made += [
                a_result(replace(cell, protocol=protocol), score if n == best else 0.9, "cpu")
                for cell, score in zip(cells, scores, strict=True)
            ]
            stored.results |= {
                result["id"]: {**result, "model": {"flops_per_token": None}} for result in made
            }
    return stored


def test_of_a_search_those_at_the_rate_that_it_finds_count(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim({"search": True})
    stored = searched(claim, kept(claim, {}), default_search().seeds, [0.2, 0.3, 0.4], [0.2, 0.3, 0.4])
    found = verdict(claim, stored)
    assert list(found.rulings[0].evidence["delta"].values.values()) == [0.2, 0.3, 0.4]
    assert found.reason == snapshot
    assert len(found.result_ids(found.rulings[0], stored)) == 6
    for left in [name for name, result in stored.results.items() if result["purpose"] == "tuning"][:1]:
        del stored.results[left]
    assert verdict(claim, stored).reason == "delta not run yet"


def test_a_verdict_says_that_learning_rates_were_chosen_on_one_seed(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim({"search": True})
    stored = searched(claim, kept(claim, {}), default_search().seeds[:1], [0.9, 0.92, 0.94], [0.5, 0.6, 0.7])
    found = verdict(claim, stored)
    (words,) = found.qualifiers
    assert found.outcome == SUPPORTED
    assert line(found) == snapshot(name="line")
    assert line(found)[3].endswith(f"; {words}")
    told = detail(found, stored)
    assert f"- **supported** ({words})" in told
    assert f"On cpu, supported; {words}:" in told
    assert (to_json(found)["qualifiers"], to_json(found)["devices"][0]["qualifiers"]) == ([words], [words])
    assert remaining_work(found, stored, device="cpu").left == 0, "what was chosen by a former rule is there"
    nothing = remaining_work(found, searched(claim, Stored([]), (), [0.9] * 3, [0.9] * 3), device="cpu")
    search = default_search()
    models, seeds = 2, len(search.seeds)
    assert nothing.left == models * (search.rates * seeds + 3)
    assert nothing.most_to_come == models * (search.extensions + 2) * seeds
    asked = verdict(
        claim, searched(claim, stored, default_search().seeds, [0.9, 0.92, 0.94], [0.5, 0.6, 0.7])
    )
    assert (asked.outcome, asked.qualifiers, asked.rulings[0].qualifiers) == (SUPPORTED, [], ())


def test_a_claim_that_waits_says_for_what(kept: Callable[..., Stored], snapshot: SnapshotAssertion) -> None:
    waiting = a_claim(needs={"models": ["no_such"], "other": ["a lens"]})
    found = verdict(waiting, kept(waiting, {"delta": [0.9, 0.9, 0.9], "sum": [0.5, 0.5, 0.5]}))
    assert (found.outcome, found.complete) == (UNDECIDED, False)
    assert found.reason == snapshot(name="waiting")
    empty = a_claim(measures={}, supported="", refuted="")
    assert verdict(empty, kept(empty, {})).reason == snapshot(name="empty")


def test_what_needs_no_training_is_decided_at_once(kept: Callable[..., Stored]) -> None:
    claim = a_table_claim()
    found = verdict(claim, kept(claim, {}))
    assert (found.outcome, found.rulings[0].kind, found.rulings[0].evidence["sum"].value) == (
        SUPPORTED,
        NOTHING_TRAINED,
        pytest.approx(7.5),
    )
    assert not any(any(measure.work("cpu", 1)) for measure in claim.deciding)


@pytest.mark.parametrize(
    ("supported", "refuted"),
    [("delta > sum", "delta > 0.1 + sum"), ("delta / sum > 2", "delta <= sum")],
    ids=["both", "none"],
)
def test_rules_that_both_hold_or_have_no_value_decide_nothing(
    snapshot: SnapshotAssertion, supported: str, refuted: str
) -> None:
    figures = {"delta": SeedEvidence({0: 0.5, 1: 0.5, 2: 0.5}), "sum": SeedEvidence({0: 0.0, 1: 0.0, 2: 0.0})}
    outcome, reason = decide(a_claim(supported=supported, refuted=refuted), figures)
    assert outcome == UNDECIDED
    assert reason == snapshot


def test_what_decides_whatever_comes_is_looked_at_again_where_all_was_trained_longer(
    kept: Callable[..., Stored],
) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.9, 0.9]})
    kept(claim, {"sum": [0.95, 0.99, 0.999]}, marks=["undertrained"])
    partly = verdict(claim, kept(claim, {"delta": [1.0, 1.0, 1.0]}, budget=2))
    assert (partly.outcome, partly.rulings[0].budget, partly.complete) == (REFUTED, 1, True)
    whole = verdict(claim, kept(claim, {"sum": [0.9, 0.9, 0.9]}, budget=2))
    assert (whole.outcome, whole.rulings[0].budget, whole.complete) == (UNDECIDED, 2, True)

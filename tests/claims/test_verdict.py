"""Verdicts on made-up results."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.claims import report_section as shown
from linbench.claims.cells import CellSource
from linbench.claims.claim import Claim, find, read_section
from linbench.claims.looks import LOOKS
from linbench.claims.page import about, detail, line, tally, to_json
from linbench.claims.reasons import NO_FIRST_SEED
from linbench.claims.remaining import remaining_work
from linbench.claims.seed_evidence import SeedEvidence
from linbench.claims.stored_results import Stored
from linbench.claims.tally import Tally
from linbench.claims.verdict import NOTHING_TRAINED, REFUTED, SUPPORTED, UNDECIDED, decide, verdict
from linbench.experiments.learning_rates import default_search, learning_rate
from tests.helpers.claims import CLAIM, a_claim, a_result, alike, cells_of

HIGH, LOW = alike(0.9), alike(0.5)


@pytest.mark.parametrize(
    ("delta", "total", "answer", "complete"),
    [
        pytest.param(HIGH, LOW, SUPPORTED, True, id="all agree"),
        pytest.param(LOW, alike(0.6), REFUTED, True, id="all are against it"),
        pytest.param(alike(0.7), alike(0.6), UNDECIDED, True, id="between"),
        pytest.param(HIGH[:13], LOW, UNDECIDED, False, id="one seed too few"),
        pytest.param(HIGH[:8], LOW, UNDECIDED, False, id="eight"),
        pytest.param(HIGH[:1], LOW[:1], UNDECIDED, False, id="one"),
        pytest.param([], LOW, UNDECIDED, False, id="one measure not run"),
        pytest.param([], [], UNDECIDED, False, id="nothing run"),
        pytest.param([*HIGH[:13], 0.6], LOW, UNDECIDED, False, id="one differs"),
        pytest.param([*HIGH[:7], 0.6], LOW, UNDECIDED, False, id="one of eight differs"),
        pytest.param([*alike(0.9, 23), 0.1], alike(0.5, 24), SUPPORTED, True, id="one of 24 differs"),
        pytest.param([*alike(0.1, 3), *alike(0.9, 21)], alike(0.5, 24), UNDECIDED, False, id="three of 24"),
        pytest.param([*alike(0.1, 5), *alike(0.9, 27)], alike(0.5, 32), SUPPORTED, True, id="five of 32"),
        pytest.param([*alike(0.1, 6), *alike(0.9, 26)], alike(0.5, 32), UNDECIDED, True, id="six of 32"),
        pytest.param([*alike(0.9, 10), *alike(0.1, 4)], LOW, UNDECIDED, False, id="both are possible"),
        pytest.param(LOW, LOW, UNDECIDED, True, id="equal"),
    ],
)
def test_a_verdict_needs_so_many_seeds_as_chance_does_not_give(
    kept: Callable[..., Stored],
    snapshot: SnapshotAssertion,
    delta: list[float],
    total: list[float],
    answer: str,
    complete: bool,
) -> None:
    claim = a_claim()
    found = verdict(claim, kept(claim, {"delta": delta, "sum": total}))
    assert (found.outcome, found.complete) == (answer, complete)
    assert (found.reason or found.values) == snapshot


def test_what_no_further_seed_can_decide_is_counted_apart(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim()
    scores = (HIGH[:8], [*HIGH[:13], 0.6], alike(0.6))
    found = [verdict(claim, kept(claim, {"delta": delta, "sum": LOW})) for delta in scores]
    assert tally(found[:2]) == snapshot(name="none")
    assert tally([*found, found[2]]) == snapshot(name="two")


def test_the_next_look_is_asked_for_and_another_device_begins_with_the_first(
    kept: Callable[..., Stored],
) -> None:
    claim = a_claim()
    some = verdict(claim, kept(claim, {"delta": HIGH[:8], "sum": LOW[:8]}))
    assert (some.next_seeds("cpu"), some.next_seeds("NVIDIA H200")) == (14, 14)
    one_differs = verdict(claim, kept(claim, {"delta": [*HIGH[:13], 0.6], "sum": LOW}))
    assert (one_differs.next_seeds("cpu"), one_differs.next_seeds("NVIDIA H200")) == (24, 14)
    decided = verdict(claim, kept(claim, {"delta": HIGH}))
    assert (decided.outcome, decided.next_seeds("cpu")) == (SUPPORTED, 14)


@pytest.mark.parametrize("mark", ["undertrained", "lr_edge", "lr_untried"])
def test_what_is_marked_counts_against(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion, mark: str
) -> None:
    claim = a_claim()
    kept(claim, {"delta": HIGH, "sum": LOW})
    found = verdict(claim, kept(claim, {"sum": LOW[:2]}, marks=[mark]))
    assert found.outcome == UNDECIDED
    assert found.reason == snapshot
    more = verdict(claim, kept(claim, {"delta": alike(0.9, 24), "sum": alike(0.5, 24)}))
    assert more.outcome == SUPPORTED, "the two are run again without a mark"
    some = verdict(claim, kept(claim, {"sum": LOW[:2]}, marks=[mark]))
    assert some.outcome == SUPPORTED, "two of 24 may be against it"


def test_what_was_still_improving_counts_where_it_cannot_change_the_answer(
    kept: Callable[..., Stored],
) -> None:
    claim = a_claim()
    kept(claim, {"delta": HIGH})
    found = verdict(claim, kept(claim, {"sum": alike(0.95)}, marks=["undertrained"]))
    assert found.outcome == REFUTED
    assert str(found.rulings[0].evidence["sum"]) == "0.950 to 1.000"
    assert to_json(found)["devices"][0]["figures"]["sum"]["between"] == [0.95, 1.0]
    other = verdict(claim, kept(claim, {"sum": alike(0.95)}, marks=["lr_edge"]))
    assert (other.outcome, str(other.rulings[0].evidence["sum"])) == (UNDECIDED, "–")
    loss = a_claim(measure={"of": "nll"})
    kept(loss, {"delta": HIGH})
    assert verdict(loss, kept(loss, {"sum": alike(0.95)}, marks=["undertrained"])).outcome == UNDECIDED


PREMISE = {"premise": "delta >= 0.9", "supported": "sum <= 0.5", "refuted": "sum > 0.5"}


def test_a_premise_belongs_to_both_rules(kept: Callable[..., Stored], snapshot: SnapshotAssertion) -> None:
    claim = a_claim(**PREMISE)
    assert [str(premise) for premise in claim.premises] == ["delta >= 0.9"]
    both = a_claim(supported="delta >= 0.9 and sum <= 0.5", refuted="sum > 0.5 and delta >= 0.9")
    assert [str(premise) for premise in both.premises] == ["delta >= 0.9"]
    assert about(claim)["Premise"] == "delta >= 0.9"
    unlearned = verdict(claim, kept(claim, {"delta": alike(0.3), "sum": alike(0.6)}))
    assert (unlearned.outcome, unlearned.complete) == (UNDECIDED, True)
    assert unlearned.reason == snapshot
    learned = verdict(claim, kept(claim, {"delta": HIGH}))
    assert learned.outcome == REFUTED
    assert detail(learned, Stored([]))[2:10] == snapshot(name="detail")


def test_one_of_several_conditions_is_shown_at_its_share_of_the_level(kept: Callable[..., Stored]) -> None:
    claim = a_claim(supported="min(delta, sum) < 0.3", refuted="min(delta, sum) >= 0.3")
    first = verdict(claim, kept(claim, {"delta": alike(0.1), "sum": alike(0.1)}))
    assert (first.outcome, first.next_seeds("cpu")) == (UNDECIDED, 24)
    found = verdict(claim, kept(claim, {"delta": alike(0.1, 24), "sum": alike(0.9, 24)}))
    assert found.outcome == SUPPORTED
    assert found.values.endswith("in all 24 seeds")


def test_where_a_claim_says_so_marks_do_not_count(kept: Callable[..., Stored]) -> None:
    claim = a_claim(measure={"marked": True})
    found = verdict(claim, kept(claim, {"delta": HIGH, "sum": LOW}, marks=["undertrained"]))
    assert found.outcome == SUPPORTED


def test_the_kind_of_device_with_most_seeds_counts(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    kept(claim, {"delta": HIGH, "sum": LOW}, device="cpu")
    more = {"delta": [*alike(0.1, 5), *alike(0.9, 19)], "sum": alike(0.5, 24)}
    found = verdict(claim, kept(claim, more, device="NVIDIA H200"))
    assert [ruling.outcome for ruling in found.rulings] == [UNDECIDED, SUPPORTED]
    assert found.outcome == UNDECIDED, "to choose by the outcome would be a second chance to be wrong"


def test_runs_that_failed_are_no_figure_and_those_that_diverged_are_at_chance(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim()
    kept(claim, {"delta": HIGH, "sum": LOW})
    failed = verdict(claim, kept(claim, {"sum": [0.5]}, status="oom"))
    assert failed.reason == snapshot(name="oom")
    diverged = verdict(claim, kept(claim, {"sum": LOW}, status="diverged", metrics={}, curve=[]))
    assert (diverged.outcome, diverged.rulings[0].evidence["sum"].between.low) == (SUPPORTED, 0.25)
    other = a_claim(measure={"of": "nll"})
    assert verdict(other, kept(other, {})).reason == snapshot(name="diverged")


def test_two_kinds_of_devices_never_decide_together(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim()
    kept(claim, {"delta": HIGH}, device="cpu")
    apart = verdict(claim, kept(claim, {"sum": LOW}, device="NVIDIA H200"))
    assert apart.outcome == UNDECIDED
    assert apart.reason == snapshot(name="apart")
    alone = verdict(claim, kept(claim, {"delta": HIGH}, device="NVIDIA H200"))
    assert (alone.outcome, [ruling.outcome for ruling in alone.rulings]) == (
        SUPPORTED,
        [SUPPORTED, UNDECIDED],
    )
    against = verdict(claim, kept(claim, {"sum": alike(0.95)}, device="cpu"))
    assert against.outcome == UNDECIDED
    assert against.reason == snapshot(name="against")


def test_results_of_other_settings_do_not_count(kept: Callable[..., Stored]) -> None:
    claim, other = a_claim(), a_claim({"set": {"model.d_model": 32}})
    found = verdict(claim, kept(other, {"delta": HIGH, "sum": LOW}))
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
    stored = kept(claim, {"delta": [*HIGH[:13], 0.94], "sum": [*LOW[:13], 0.6]})
    (one,) = shown.claim_sections(stored)
    assert one.row == snapshot
    assert one.about["Supported if"] == CLAIM["supported"]
    ((where, figures),) = one.figures
    assert (where, list(figures["value"])) == (
        "On cpu, supported",
        [
            "0.900 (0.900 to 0.940)",
            "0.500 (0.500 to 0.600)",
        ],
    )
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
                for cell, score in zip(cells, scores, strict=False)
            ]
            stored.results |= {
                result["id"]: {**result, "model": {"flops_per_token": None}} for result in made
            }
    return stored


def test_of_a_search_those_at_the_rate_that_it_finds_count(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim({"search": True})
    stored = searched(claim, kept(claim, {}), default_search().seeds, [0.2, 0.3, 0.4], [0.2, 0.3, 0.5])
    found = verdict(claim, stored)
    assert list(found.rulings[0].evidence["delta"].values.values()) == [0.2, 0.3, 0.4]
    assert found.reason == snapshot
    assert len(found.result_ids(found.rulings[0], stored)) == 6
    for left in [name for name, result in stored.results.items() if result["purpose"] == "tuning"][:1]:
        del stored.results[left]
    assert verdict(claim, stored).reason == "delta not run yet"


@pytest.mark.slow
def test_a_verdict_says_that_learning_rates_were_chosen_on_one_seed(
    kept: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_claim({"search": True})
    stored = searched(claim, kept(claim, {}), default_search().seeds[:1], HIGH, LOW)
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
    nothing = remaining_work(found, searched(claim, Stored([]), (), HIGH, HIGH), device="cpu")
    search = default_search()
    models, seeds = 2, len(search.seeds)
    assert nothing.left == models * (search.rates * seeds + LOOKS[0])
    assert nothing.most_to_come == models * (search.extensions + 2) * seeds
    asked = verdict(claim, searched(claim, stored, default_search().seeds, HIGH, LOW))
    assert (asked.outcome, asked.qualifiers, asked.rulings[0].qualifiers) == (SUPPORTED, (), ())


def test_more_seeds_join_the_rate_that_a_former_rule_chose(kept: Callable[..., Stored]) -> None:
    claim = a_claim({"search": True})
    stored = searched(claim, kept(claim, {}), default_search().seeds[:1], HIGH[:8], LOW[:3])
    found = verdict(claim, stored)
    work = [measure.missing(stored, "cpu", found.next_seeds("cpu")) for measure in claim.deciding]
    assert [len(each.joining) for each in work] == [6, 11]
    assert [each.cells for each in work] == [(), ()], "nothing is searched anew"
    assert {cell.protocol.lr for each in work for cell in each.joining} == {learning_rate(-12)}
    left = remaining_work(found, stored, device="cpu")
    assert (left.cells, left.left, left.most_to_come, left.doublings) == (2 * LOOKS[0], 17, 0, 0)


def test_a_claim_that_waits_says_for_what(kept: Callable[..., Stored], snapshot: SnapshotAssertion) -> None:
    waiting = a_claim(needs={"models": ["no_such"], "other": ["a lens"]})
    found = verdict(waiting, kept(waiting, {"delta": HIGH, "sum": LOW}))
    assert (found.outcome, found.complete) == (UNDECIDED, False)
    assert found.reason == snapshot(name="waiting")
    empty = a_claim(measures={}, supported="", refuted="")
    assert verdict(empty, kept(empty, {})).reason == snapshot(name="empty")


def test_what_needs_no_training_is_decided_at_once(kept: Callable[..., Stored]) -> None:
    claim = a_table_claim()
    found = verdict(claim, kept(claim, {}))
    assert (found.outcome, found.rulings[0].kind, found.rulings[0].evidence["sum"].between.low) == (
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
    figures = {
        "delta": SeedEvidence(dict.fromkeys(range(14), 0.5)),
        "sum": SeedEvidence(dict.fromkeys(range(14), 0.0)),
    }
    outcome, reason = decide(a_claim(supported=supported, refuted=refuted), Tally(figures))
    assert outcome == UNDECIDED
    assert reason == snapshot


def test_seeds_that_ended_out_of_order_decide_nothing() -> None:
    figures = {
        "delta": SeedEvidence(dict.fromkeys(range(14), 0.5)),
        "sum": SeedEvidence({6: 0.0}),
    }
    assert decide(a_claim(supported="delta > sum", refuted="delta <= sum"), Tally(figures)) == (
        UNDECIDED,
        NO_FIRST_SEED,
    )


@pytest.mark.slow
def test_what_is_left_says_how_often_training_may_go_on() -> None:
    nothing = Stored([])
    for name, doublings in (("C26", 5), ("C1", 0)):
        found = verdict(find(name), nothing)
        assert remaining_work(found, nothing, device="cpu").doublings == doublings

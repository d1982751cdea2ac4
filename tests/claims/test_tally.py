"""The answers of seeds, and whether they are enough."""

import ast

from linbench.claims.interval import Interval
from linbench.claims.quantities import Comparison, expand
from linbench.claims.seed_evidence import ExcludedSeed, SeedEvidence
from linbench.claims.speed_evidence import SpeedEvidence
from linbench.claims.tally import Tally
from linbench.results.speeds import Rate


def condition(text: str) -> Comparison:
    found = expand(ast.parse(text, mode="eval").body)
    assert isinstance(found, Comparison)
    return found


def seeds(*values: float) -> SeedEvidence:
    return SeedEvidence(dict(enumerate(values)))


def test_a_replicate_is_a_seed_that_all_measures_have() -> None:
    gap = SeedEvidence({0: 1.0, 1: 1.0, 3: 1.0})
    tally = Tally({"a": seeds(*[1.0] * 20), "b": gap})
    assert (tally.seeds, tally.look) == (2, None)
    assert Tally({"a": seeds(*[1.0] * 20)}).look == 0


def test_a_seed_that_does_not_tell_is_no_yes() -> None:
    aside = {
        1: ExcludedSeed("lr_edge", Interval(0.9, 0.9)),
        2: ExcludedSeed("undertrained", Interval(0.4, 1.0)),
    }
    tally = Tally({"a": SeedEvidence({0: 0.9}, excluded=aside)})
    assert tally.answers(condition("a > 0.5")) == [True, None, None]
    assert tally.answers(condition("a > 0.3")) == [True, None, True]
    assert tally.yes(condition("a > 0.3"), 3) == 2


def test_what_has_no_seeds_is_true_or_not() -> None:
    speed = {"fast": SpeedEvidence(Rate(10.0, 9.0, 11.0)), "slow": SpeedEvidence(Rate(5.0, 4.0, 6.0))}
    tally = Tally(speed)
    assert (tally.has_seeds, tally.seeds, tally.look) == (False, 0, 0)
    shown = [tally.shows(condition(f"fast / slow >= {ratio}")) for ratio in (1.5, 1.6)]
    assert shown == [True, False], "9 / 6 is the least between the percentiles"
    both = Tally({**speed, "a": seeds(*[1.0] * 14)})
    assert both.shows(condition("a > 0.5"))
    assert both.shows(condition("fast > slow"))
    busy = Tally({"fast": SpeedEvidence(Rate(10.0, 9.0, 11.0), obstacle="busy")})
    assert not busy.shows(condition("fast > 1"))


def test_seeds_to_come_are_taken_to_be_like_those_seen_or_all_alike() -> None:
    tally = Tally({"a": seeds(*[1.0] * 7, 0.0)})
    assert [tally.further_seeds(condition(text)) for text in ("a >= 0", "a > 0.5", "a < 0.5")] == [
        6,
        24,
        None,
    ]
    assert tally.may_show(condition("a > 0.5"))
    assert not tally.may_show(condition("a < 0.5"))
    assert not Tally({"a": seeds(*[1.0] * 32)}).may_show(condition("a > 2"))

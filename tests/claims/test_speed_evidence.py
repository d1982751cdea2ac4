"""Verdicts by timings of layers: medians, with percentiles of calls in place of seeds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.bench.layer import LayerCase
from linbench.claims.claim import Claim, read_section
from linbench.claims.page import detail, line, to_json
from linbench.claims.remaining import remaining_work
from linbench.claims.stored_results import Stored
from linbench.claims.timings import TRAINING
from linbench.claims.verdict import REFUTED, SUPPORTED, UNDECIDED, verdict
from linbench.common.hashing import digest
from linbench.results.schema import Result
from linbench.results.store import SPEED, Store
from tests.helpers.claims import CLAIM


def a_timed_claim(length: int = 64, **changes: Any) -> Claim:
    """Return the claim that DeltaNet trains at half the speed of GLA, or faster."""
    text = {
        "measure": {"cells": "narrow", "where": {"length": length}, "of": TRAINING},
        "measures": {"delta": "deltanet", "gla": "gla"},
        "supported": "delta / gla >= 0.5",
        "refuted": "delta / gla < 0.5",
    }
    values = {
        "title": "t",
        "timed": {"narrow": {"preset": "tiny", "lengths": [length]}},
        "claims": {"C1": CLAIM | text | changes},
    }
    (claim,) = read_section(values, where="a.yaml")
    return claim


def untimed(claim: Claim, stored: Stored) -> list[LayerCase]:
    """Return the timings that a claim lacks on a CPU."""
    return [case for measure in claim.deciding for case in measure.missing(stored, "cpu", 1).timings]


def a_timing(claim: Claim, name: str, seconds: Sequence[float], kind: str, **more: Any) -> Result:
    """Return a timing of a batch of 4,096 tokens: the median in seconds, the 20th and the 80th percentile.

    On a GPU a caller waits ten times as long as the device takes.
    """
    case = untimed(claim, Stored([]))[list(claim.measures).index(name)]
    bench = {**case.identity, "device": kind, "precision": "fp32" if kind == "cpu" else "bf16"}
    taken = {"median": seconds[0], "low": seconds[1], "high": seconds[2], "calls": 20}
    slower = {how: value if how == "calls" else 10 * value for how, value in taken.items()}
    side = {"as_called": taken} if kind == "cpu" else {"as_called": slower, "replayed": taken}
    environment = {"device": {"name": kind}, "threads": 1, "commit": "ab", "dirty": False, "packages": {}}
    result = {
        "id": digest(bench),
        "schema": bench["schema"],
        "kind": SPEED,
        "label": case.label,
        "bench": bench,
        "status": "ok",
        "reason": None,
        "marks": [],
        "sides": {"linbench": side},
        "environment": environment,
        "state": None,
        "cost": None,
        "ceilings": None,
        "first_call": None,
    }
    return result | more


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
    ("delta", "gla", "answer"),
    [
        pytest.param(STEADY, STEADY, SUPPORTED, id="equal"),
        pytest.param((3.0, 2.97, 3.03), STEADY, REFUTED, id="slower"),
        pytest.param((1.9, 1.8, 2.1), STEADY, UNDECIDED, id="supported but for slow calls"),
        pytest.param((2.1, 1.9, 2.2), STEADY, UNDECIDED, id="refuted but for fast calls"),
        pytest.param((1.9, 1.9, 1.9), (1.0, 0.9, 1.0), UNDECIDED, id="the other's fast calls"),
        pytest.param(STEADY, None, UNDECIDED, id="one missing"),
        pytest.param(None, None, UNDECIDED, id="none there"),
    ],
)
def test_of_layers_timed_a_verdict_is_that_of_medians_if_no_fifth_makes_another(
    timed: Callable[..., Stored],
    snapshot: SnapshotAssertion,
    kind: str,
    delta: Sequence[float] | None,
    gla: Sequence[float] | None,
    answer: str,
) -> None:
    """On a GPU by what the device takes alone, on a CPU by what a caller waits."""
    claim = a_timed_claim()
    found = verdict(
        claim,
        timed(claim, {name: seconds for name, seconds in (("delta", delta), ("gla", gla)) if seconds}, kind),
    )
    assert found.outcome == answer
    assert found.reason == snapshot
    assert [ruling.kind for ruling in found.rulings] == ([kind] if delta or gla else [])
    if delta:
        assert found.rulings[0].evidence["delta"].between.low == pytest.approx(4096 / delta[0])


def test_what_was_timed_beside_others_is_to_be_timed_again_and_at_the_limit_of_power_not(
    timed: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_timed_claim()
    throttled = timed(claim, {"delta": STEADY, "gla": STEADY}, marks=["throttled"])
    assert verdict(claim, throttled).outcome == SUPPORTED
    delta = verdict(claim, throttled).rulings[0].evidence["delta"]
    assert (str(delta), delta.out_of) == ("4,096 (4,055 to 4,137)", "20 calls, throttled")
    assert untimed(claim, throttled) == []
    busy = timed(claim, {"gla": STEADY}, marks=["busy", "throttled"])
    found = verdict(claim, busy)
    assert (found.outcome, found.complete) == (UNDECIDED, False)
    assert found.reason == snapshot(name="busy")
    assert [case.label for case in untimed(claim, busy)] == ["gla"]
    assert remaining_work(found, busy, device="cpu")[:2] == (0, 0)
    assert remaining_work(found, busy, device="cpu")[3:] == (2, 1, 0, 0)
    few = timed(
        claim,
        {"gla": STEADY},
        sides={"linbench": {"as_called": {"median": 1.0, "low": 1.0, "high": 1.0, "calls": 4}}},
    )
    found = verdict(claim, few)
    assert (found.outcome, found.complete) == (UNDECIDED, False)
    assert found.reason == snapshot(name="few calls")


def test_what_could_not_be_timed_or_replayed_decides_nothing_and_is_not_tried_again(
    timed: Callable[..., Stored], snapshot: SnapshotAssertion
) -> None:
    claim = a_timed_claim()
    timed(claim, {"delta": STEADY})
    found = verdict(claim, timed(claim, {"gla": STEADY}, status="oom", sides={}))
    assert (found.outcome, found.complete) == (UNDECIDED, True)
    assert found.reason == snapshot(name="oom")
    timed(claim, {"delta": STEADY}, kind="NVIDIA H200")
    only_called = {
        "linbench": {
            "as_called": {"median": 1.0, "low": 1.0, "high": 1.0, "calls": 5},
            "note": "not captured",
        }
    }
    stored = timed(claim, {"gla": STEADY}, kind="NVIDIA H200", sides=only_called)
    assert verdict(claim, stored).reason == snapshot(name="not replayed")


def test_speeds_at_other_shapes_do_not_count(timed: Callable[..., Stored]) -> None:
    claim, other = a_timed_claim(), a_timed_claim(length=128)
    stored = timed(other, {"delta": STEADY, "gla": STEADY})
    assert verdict(claim, stored).reason == "not run yet"
    assert [len(untimed(one, stored)) for one in (claim, other)] == [2, 0]


def test_a_speed_as_json(timed: Callable[..., Stored]) -> None:
    claim = a_timed_claim()
    told = to_json(verdict(claim, timed(claim, {"delta": (2.0, 1.0, 4.0)}, marks=["throttled"])))["devices"][
        0
    ]["figures"]
    assert told["delta"] == {
        "value": 2048,
        "low": 1024,
        "high": 4096,
        "calls": 20,
        "marks": ["throttled"],
        "missing": 0,
    }
    assert told["gla"] == {
        "value": None,
        "low": None,
        "high": None,
        "calls": 0,
        "marks": [],
        "missing": 1,
    }


def test_the_picture_that_shows_speeds_is_named(timed: Callable[..., Stored], tmp_path: Path) -> None:
    claim = a_timed_claim(figure="replayed")
    stored = timed(claim, {"delta": STEADY, "gla": STEADY}, kind="NVIDIA H200")
    picture = (
        tmp_path / "figures" / "speed-train-replayed-d64-bf16-4096-tokens-a-batch-native-nvidia-h200.svg"
    )
    found = verdict(claim, stored)
    ids = found.result_ids(found.rulings[0], stored)
    assert stored.pictures(ids, "replayed") == []
    picture.parent.mkdir()
    picture.touch()
    assert f"\nShown in `{picture}`." in detail(found, stored)
    assert f"\n![{picture.stem}](../figures/{picture.name})" in detail(
        found, stored, beside=tmp_path / "docs" / "claims.md"
    )
    assert line(found)[3].startswith("delta ")

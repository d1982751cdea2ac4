from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.report.tables.gate import outcome, page, sentences, speed_table, to_json
from linbench.results.gate import Gate, gate
from linbench.results.gate_policy import Policy
from linbench.results.schema import Result
from tests.helpers.speeds import a_speed

TORCH = {
    "packages": {"torch": "2.9.0+cpu"},
    "device": {"name": "a CPU"},
    "threads": 2,
    "commit": "ab",
    "dirty": False,
}


def timed(seconds: float = 1.0, **more: Any) -> Result:
    return a_speed(seconds=seconds, **{"environment": TORCH, **more})


@pytest.fixture
def gated(a_result: Callable[..., Any]) -> Callable[..., Gate]:
    """Gate speeds beside a cell that did not change."""
    cells = [a_result(seed=seed, score=0.8) for seed in range(6)]
    return lambda before, after, **policy: gate(
        cells, cells, Policy.parse(policy, where="policy"), speeds=(before, after)
    )


def test_speeds_are_shown_and_never_red_by_themselves(
    gated: Callable[..., Gate], snapshot: SnapshotAssertion
) -> None:
    found = gated([timed()], [timed(3.0)])
    (one,) = found.speeds
    assert (found.exit_code, one.red, sentences(found)) == (0, False, [])
    assert one.ratio == pytest.approx(3.0)
    assert one.ratio_bounds == pytest.approx((2.7 / 1.1, 3.3 / 0.9))
    assert speed_table(found).texts == snapshot
    assert "never red" in page(found, Policy())


def test_what_takes_longer_than_the_policy_lets_pass_is_red(
    gated: Callable[..., Gate], snapshot: SnapshotAssertion
) -> None:
    assert gated([timed()], [timed(1.4)], slower=1.5).exit_code == 0
    found = gated([timed()], [timed(1.6)], slower=1.5)
    assert (found.exit_code, len(found.slower), len(found.red)) == (4, 1, 0)
    assert [*sentences(found), outcome(found)] == snapshot
    assert speed_table(found).texts[0][4] == "RED"
    assert to_json(found, Policy(slower=1.5))["speeds"][0]["red"] is True
    assert "more than 1.5 times" in page(found, Policy(slower=1.5))


def test_what_the_fifths_do_not_show_is_not_red(gated: Callable[..., Gate]) -> None:
    wide = {"sides": {"linbench": {"as_called": {"median": 1.6, "low": 0.9, "high": 3.0, "calls": 9}}}}
    found = gated([timed()], [timed(**wide)], slower=1.5)
    assert (found.exit_code, speed_table(found).texts[0][4]) == (0, "no difference shown")
    assert speed_table(gated([timed()], [timed(0.5)])).texts[0][4] == "faster"


@pytest.mark.parametrize("mark", ["busy", "throttled"])
@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_what_was_not_measured_soundly_is_never_red_and_is_said(
    gated: Callable[..., Gate], snapshot: SnapshotAssertion, mark: str, side: str
) -> None:
    marks = {name: [mark] if name == side else [] for name in ("baseline", "candidate")}
    found = gated([timed(marks=marks["baseline"])], [timed(9.0, marks=marks["candidate"])], slower=1.5)
    assert found.exit_code == 5, "what can never be red does not pass"
    assert speed_table(found).texts[0][4:] == ["not judged", f"{side}: {mark}"]
    assert [*sentences(found), outcome(found)] == snapshot
    shown = gated([timed(marks=marks["baseline"])], [timed(9.0, marks=marks["candidate"])])
    assert (shown.exit_code, sentences(shown)) == (0, [])


def layered(**more: Any) -> dict[str, Any]:
    return {"bench": {"layer": {**timed()["bench"]["layer"], **more}}}


def test_code_may_differ_and_a_new_setting_is_the_same_layer(gated: Callable[..., Gate]) -> None:
    for other in (
        timed(**layered(version=2, kernel={"matrix_state": 9}, source="f" * 64)),
        timed(settings={"gate": "none"}),
        timed(environment={**TORCH, "commit": "cd", "packages": {"torch": "2.9.0"}}),
    ):
        found = gated([timed()], [other])
        assert (len(found.speeds), found.untimed) == (1, ())
    both = gated([timed(label="gla"), timed()], [timed(), timed(label="gla")])
    assert [one.name.partition(",")[0] for one in both.speeds] == ["deltanet native", "gla native"]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([], id="none"),
        pytest.param([timed(length=512)], id="another length"),
        pytest.param([timed(bench={"version": 2})], id="another version"),
        pytest.param([timed(), timed(2.0)], id="two"),
        pytest.param([timed(status="failed", reason="no.", sides={})], id="failed"),
        pytest.param([timed(environment={**TORCH, "threads": 1})], id="another device"),
        pytest.param([timed(environment={**TORCH, "packages": {"torch": "2.9.1"}})], id="another torch"),
    ],
)
def test_what_cannot_be_compared_is_said_and_counts_where_speeds_are_gated(
    gated: Callable[..., Gate], snapshot: SnapshotAssertion, after: Sequence[Result]
) -> None:
    shown = gated([timed()], after)
    assert (shown.exit_code, shown.speeds) == (0, ())
    (sentence,), (told,) = shown.untimed, sentences(shown)
    assert told == snapshot
    assert told.endswith(f": {sentence}")
    asked = gated([timed()], after, slower=1.5)
    assert (asked.exit_code, asked.problems) == (5, (sentence,))
    assert sentences(asked) == [sentence]


def test_an_update_of_torch_can_be_gated_and_another_machine_cannot(gated: Callable[..., Gate]) -> None:
    newer = timed(2.0, environment={**TORCH, "packages": {"torch": "2.9.1"}})
    assert gated([timed()], [newer], slower=1.5, may_differ=["torch"]).exit_code == 4
    elsewhere = timed(2.0, environment={**TORCH, "device": {"name": "another CPU"}})
    assert gated([timed()], [elsewhere], slower=1.5, may_differ=["device"]).exit_code == 5


def test_speeds_alone_can_be_gated_but_not_without_any(snapshot: SnapshotAssertion) -> None:
    policy = Policy(slower=1.5)
    assert gate([], [], policy, speeds=([timed()], [timed()])).exit_code == 0
    assert gate([], [], Policy(), speeds=([timed()], [timed()])).exit_code == 5
    assert gate([], [], policy).problems[0] == snapshot


def test_the_device_alone_counts_where_both_have_it(gated: Callable[..., Gate]) -> None:
    (one,) = gated([timed(gpu=True)], [timed(3.0, gpu=True)]).speeds
    assert (one.timing, one.baseline.median) == ("replayed", pytest.approx(2048))
    (one,) = gated([timed(gpu=True)], [timed(3.0)]).speeds
    assert (one.timing, one.baseline.median) == ("as_called", pytest.approx(1024))


def test_a_speed_that_the_baseline_could_not_measure_does_not_pass(
    gated: Callable[..., Gate], snapshot: SnapshotAssertion
) -> None:
    found = gated([timed(status="failed", reason="no.", sides={})], [timed()], slower=1.5)
    assert found.exit_code == 5
    assert found.problems == snapshot


def test_what_has_no_time_is_no_row(gated: Callable[..., Gate]) -> None:
    memory = timed(question="memory", sides={"linbench": {"peak_bytes": 1}})
    undeclared = timed(label="mine", status="undeclared", reason="no state", sides={})
    found = gated([memory, undeclared], [memory, undeclared])
    assert (found.speeds, found.untimed) == ((), ())


def test_a_policy_that_lets_nothing_be_slower_is_refused() -> None:
    with pytest.raises(UserError, match=r"policy.slower = 1"):
        Policy.parse({"slower": 1}, where="policy")

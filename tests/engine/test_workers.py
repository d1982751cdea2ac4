import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import call
from pathlib import Path
from threading import Thread

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import StorageError
from linbench.common.memory import Memory
from linbench.engine import workers as what
from linbench.engine.workers import Outcome, _Worker, outcomes
from tests.helpers.processes import alive


def test_in_this_process_what_raises_costs_one_call(snapshot: SnapshotAssertion) -> None:
    found = [outcome for _, outcome in outcomes(int, ["1", "one\nor two", "3"], workers=0)]
    assert [outcome.value for outcome in found] == [1, None, 3]
    assert found[1].failure == snapshot


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_dies_costs_its_call_only(workers: int, snapshot: SnapshotAssertion) -> None:
    deaths = [partial(os._exit, 3), os.getpid, partial(signal.raise_signal, signal.SIGKILL)]
    found = dict(outcomes(call, deaths, workers=workers))
    assert [found[0].failure, found[2].failure] == snapshot
    assert found[1].value not in (None, os.getpid())


def test_a_process_lives_on_until_a_call_fails() -> None:
    found = dict(outcomes(call, [os.getpid, os.getpid, partial(int, "x"), os.getpid], workers=1))
    assert found[0].value == found[1].value != found[3].value
    assert (found[2].failure or "").startswith("ValueError: ")
    assert (found[2].failure or "").endswith(": 'x'")
    fresh = dict(outcomes(call, [os.getpid, os.getpid], workers=1, fresh=True))
    assert fresh[0].value != fresh[1].value


@pytest.mark.slow
def test_what_is_not_there_yet_is_asked_for_again_after_an_outcome_and_finds_a_process_that_waited(
    tmp_path: Path,
) -> None:
    found: dict[int, Outcome] = {}

    def arguments() -> Iterator[Callable[[], int] | None]:
        yield os.getpid
        yield partial(_wait_for, tmp_path / "later")
        while not found:
            yield None
        yield os.getpid
        while len(found) < 2:
            yield None
        assert sorted(found) == [0, 2], "the second is not over"
        (tmp_path / "later").touch()
        while len(found) < 3:
            yield None
        yield os.getpid

    for place, outcome in outcomes(call, arguments(), workers=2):
        found[place] = outcome
    assert sorted(found) == [0, 1, 2, 3]
    assert found[2].value == found[0].value != found[1].value
    assert found[3].value in (found[0].value, found[1].value)


@pytest.mark.slow
def test_the_process_that_goes_on_is_the_one_whose_device_is_least_busy(tmp_path: Path) -> None:
    here, there = {"PLACE": "here"}, {"PLACE": "there"}
    found: dict[int, Outcome] = {}

    def arguments() -> Iterator[Callable[[], object] | None]:
        yield partial(_wait_for, tmp_path / "later")
        yield os.getpid
        yield partial(_wait_for, tmp_path / "last")
        while not found:
            yield None
        (tmp_path / "last").touch()
        while len(found) < 2:
            yield None
        yield partial(os.getenv, "PLACE")  # the last to be idle is here, where one is at work
        (tmp_path / "later").touch()

    for place, outcome in outcomes(call, arguments(), workers=3, environments=[here, there, here]):
        found[place] = outcome
    assert found[3].value == "there"


@pytest.mark.slow
def test_a_call_that_hangs_is_ended(snapshot: SnapshotAssertion) -> None:
    began = time.monotonic()
    found = dict(outcomes(time.sleep, [60.0, 0.0], workers=2, seconds=1.0))
    assert found[0].failure == snapshot
    assert time.monotonic() - began < 30


def test_what_a_process_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    list(outcomes(print, ["a word"], workers=1))
    assert capfd.readouterr() == ("", "a word\n")


def test_a_process_that_dies_before_it_has_read_its_argument_costs_that_call_only(
    snapshot: SnapshotAssertion,
) -> None:
    worker = _Worker(len, {}, talks=False)
    worker.process.kill()
    worker.begin(0, b"more than a pipe holds" * 100_000, 60.0)
    outcome = worker.receive(60.0)
    assert outcome == Outcome(failure=outcome.failure, outside=True)
    assert outcome.failure == snapshot
    worker.end()


def test_what_cannot_be_kept_ends_all_calls() -> None:
    for workers in (0, 1):
        with pytest.raises(StorageError, match="the disk is full"):
            list(outcomes(_full, [1, 2], workers=workers))


@pytest.mark.slow
def test_a_call_that_hangs_does_not_outlive_who_asked_for_it(tmp_path: Path) -> None:
    asker = multiprocessing.get_context("spawn").Process(target=_ask, args=(tmp_path / "worker",))
    asker.start()
    while not (tmp_path / "worker").exists():
        time.sleep(0.05)
        assert asker.is_alive()
    asker.kill()
    asker.join()
    worker, deadline = int((tmp_path / "worker").read_text()), time.monotonic() + 20
    while alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_ended_a_process_from_outside_is_told_from_its_own_doing() -> None:
    deaths = [partial(signal.raise_signal, number) for number in (signal.SIGTERM, signal.SIGSEGV)] + [
        partial(os._exit, 0)
    ]
    found = dict(outcomes(call, deaths, workers=1))
    assert [found[i].outside for i in range(3)] == [True, False, False]


def test_whatever_a_call_raises_is_its_own_failure() -> None:
    found = dict(outcomes(call, [sys.exit, _interrupted, _odd, os.getpid], workers=1))
    assert [found[i].failure for i in range(3)] == ["SystemExit", "KeyboardInterrupt", "Odd"]
    assert found[3].value


@pytest.mark.slow
def test_those_of_different_kinds_share_no_process(tmp_path: Path) -> None:
    kinds = ["a", "b", None, "a", None, "b"]
    found = dict(outcomes(_pid_of, list(enumerate(kinds)), workers=2, kind=lambda argument: argument[1]))
    pids = {kind: {found[i].value for i, each in enumerate(kinds) if each == kind} for kind in kinds}
    assert all(pids.values())
    assert len(set.union(*pids.values())) == sum(map(len, pids.values()))


@pytest.mark.slow
def test_a_process_with_something_left_in_it_serves_no_other_call_of_a_kind_and_ends_with_all_of_it(
    tmp_path: Path,
) -> None:
    calls = [
        _leave_a_thread,
        os.getpid,
        partial(_leave_children, tmp_path / "children"),
        os.getpid,
        os.getpid,
    ]
    found = dict(outcomes(call, calls, workers=1, kind=lambda argument: "theirs"))
    pids = [found[i].value for i in range(5)]
    assert pids[0] != pids[1] == pids[2] != pids[3] == pids[4]
    assert not any(alive(int(pid)) for pid in (tmp_path / "children").read_text().split())


@pytest.mark.slow
def test_a_process_that_closes_its_descriptors_is_ended(snapshot: SnapshotAssertion) -> None:
    found = dict(outcomes(call, [partial(os.closerange, 0, 256), _close_and_hang, os.getpid], workers=1))
    assert [found[i].failure for i in range(2)] == snapshot
    assert found[2].value


@pytest.mark.slow
@pytest.mark.parametrize(("total", "outside"), [(1 << 30, True), (1 << 28, False)])
def test_the_largest_process_is_ended_when_memory_is_full(
    monkeypatch: pytest.MonkeyPatch, total: int, outside: bool, snapshot: SnapshotAssertion
) -> None:
    """The machine is made to look small."""
    monkeypatch.setattr(what, "memory", lambda: Memory(total, 0))
    found = dict(outcomes(_take, [300 << 20, 0], workers=2))
    failure = found[0].failure or ""
    assert re.sub(r"[\d.]+ GiB", "SIZE", failure, count=1) == snapshot
    assert (found[0].full, found[0].outside, found[1].failure) == (True, outside, None)


def _interrupted() -> None:
    raise KeyboardInterrupt


def _odd() -> None:
    raise type("Odd", (BaseException,), {"__str__": lambda self: 1 / 0})


def _pid_of(argument: object) -> int:
    return os.getpid()


def _leave_a_thread() -> int:
    Thread(target=time.sleep, args=(600,)).start()
    return os.getpid()


def _leave_children(path: Path) -> int:
    path.write_text(
        " ".join(
            str(subprocess.Popen(["sleep", "600"], start_new_session=apart).pid) for apart in (False, True)
        )
    )
    return os.getpid()


def _close_and_hang() -> None:
    os.closerange(0, 256)
    time.sleep(600)


def _take(size: int) -> None:
    taken = b"1" * size
    time.sleep(600 if taken else 0)


def _wait_for(path: Path) -> int:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.getpid()


def _full(argument: int) -> None:
    raise StorageError("the disk is full.")


def _ask(path: Path) -> None:
    list(outcomes(_hang, [path], workers=1))


def _hang(path: Path) -> None:
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(600)

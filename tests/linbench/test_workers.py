import os
import signal
import time
from functools import partial
from operator import call

import pytest

from linbench.workers import outcomes


def test_in_this_process_what_raises_costs_one_call() -> None:
    found = [outcome for _, outcome in outcomes(int, ["1", "one\nor two", "3"], workers=0)]
    assert [outcome.value for outcome in found] == [1, None, 3]
    assert found[1].failure == r"ValueError: invalid literal for int() with base 10: 'one\nor two'"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_dies_costs_its_call_only(workers: int) -> None:
    deaths = [partial(os._exit, 3), os.getpid, partial(signal.raise_signal, signal.SIGKILL)]
    found = dict(outcomes(call, deaths, workers=workers))
    assert found[0].failure == "its process died with exit code 3"
    assert found[1].value not in (None, os.getpid())
    assert found[2].failure == "its process died with SIGKILL"


def test_a_process_lives_on_until_a_call_fails() -> None:
    found = dict(outcomes(call, [os.getpid, os.getpid, partial(int, "x"), os.getpid], workers=1))
    assert found[0].value == found[1].value != found[3].value
    assert found[2].failure == "ValueError: invalid literal for int() with base 10: 'x'"
    fresh = dict(outcomes(call, [os.getpid, os.getpid], workers=1, fresh=True))
    assert fresh[0].value != fresh[1].value


def test_a_call_that_hangs_is_ended() -> None:
    began = time.monotonic()
    found = dict(outcomes(time.sleep, [60.0, 0.0], workers=2, seconds=1.0))
    assert found[0].failure == "took longer than 1 s"
    assert time.monotonic() - began < 30


def test_what_a_process_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    list(outcomes(print, ["a word"], workers=1))
    assert capfd.readouterr() == ("", "a word\n")

"""A limit of open files is told of before anything is run."""

import resource

import pytest

from linbench.common.errors import UserError
from linbench.engine import limits
from linbench.engine.limits import require_files


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of a process with ten open files, as they are asked for and set."""
    now = [(64, 64)]
    monkeypatch.setattr(limits, "_open_now", lambda: 10)
    monkeypatch.setattr(resource, "getrlimit", lambda what: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda what, given: now.append(given))
    return now


def test_what_fits_is_let_be(limit: list[tuple[int, int]]) -> None:
    require_files(24, 1)
    assert limit == [(64, 64)]


def test_a_soft_limit_is_raised(limit: list[tuple[int, int]]) -> None:
    limit.append((64, 4096))
    require_files(64, 2)
    assert limit[-1] == (174, 4096)


@pytest.mark.parametrize(
    ("largest", "places", "sentence"),
    [
        (
            64,
            1,
            (
                "this process may have 64 files open, and a group of 64 cells takes 104. Allow more with"
                " `ulimit -n 208`; or train fewer cells together, "
            ),
        ),
        (64, 1, "with --stack 24."),
        (1, 32, "and 32 groups of 1 cell take 258. Allow more with `ulimit -n 516`."),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    limit: list[tuple[int, int]], largest: int, places: int, sentence: str
) -> None:
    with pytest.raises(UserError) as raised:
        require_files(largest, places)
    assert sentence in str(raised.value)

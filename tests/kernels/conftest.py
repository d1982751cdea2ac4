"""Fixtures of the tests of kernels, and what Triton's interpreter needs.

Triton reads TRITON_INTERPRET when it is first imported. With `TRITON_INTERPRET=1 pytest tests/kernels -m
interpreter` kernels run in its interpreter, on the CPU; `test_interpreted.py` starts that.
"""

from collections.abc import Iterator

import pytest

from linbench.kernels.operators import INTERPRETED


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the interpreter, if it runs the kernels, compute as a GPU does."""
    if INTERPRETED:
        from tests.helpers.interpreter import mend

        mend(monkeypatch)


@pytest.fixture(scope="session", autouse=INTERPRETED)
def hurried() -> Iterator[None]:
    """Make the interpreter take less time."""
    from tests.helpers.interpreter import hurry

    with pytest.MonkeyPatch.context() as monkeypatch:
        hurry(monkeypatch)
        yield

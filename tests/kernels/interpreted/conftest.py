"""Kernels in Triton's interpreter, on the CPU. Triton reads the variable when it is first imported, so these
tests want a process of their own."""

from collections.abc import Iterator

import pytest

from linbench.kernels.operators import INTERPRETED

collect_ignore_glob = [] if INTERPRETED else ["*"]


@pytest.fixture(scope="session", autouse=True)
def hurried() -> Iterator[None]:
    """The interpreter takes less time."""
    from tests.kernels.interpreting import hurry

    with pytest.MonkeyPatch.context() as monkeypatch:
        hurry(monkeypatch)
        yield

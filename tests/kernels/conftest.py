"""What tests of Triton's kernels ask for."""

import pytest

from linbench.kernels.operators import INTERPRETED


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the interpreter runs them, it computes as a GPU does."""
    if INTERPRETED:
        from tests.kernels.interpreting import mend

        mend(monkeypatch)

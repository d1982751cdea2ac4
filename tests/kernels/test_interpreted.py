"""The tests marked `interpreter`, once more in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux")
@pytest.mark.parametrize(
    "where",
    [["tests/kernels/interpreted"], ["tests/kernels", "--ignore=tests/kernels/interpreted"]],
    ids=["matrix_state", "the others"],
)
def test_kernels_hold_in_the_interpreter(where: list[str]) -> None:
    """Run them in two halves, which may go side by side."""
    command = [sys.executable, "-m", "pytest", *where, "-m", "interpreter and not nightly"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

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
def test_kernels_hold_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "tests/kernels", "-m", "interpreter"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

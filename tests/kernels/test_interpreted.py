"""The tests marked `interpreter`, once more in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


ATTENTION = [
    "test_attention.py",
    "test_cached_attention.py",
    "test_gated_attention.py",
    "test_next_token.py",
    "test_triton_path_attention.py",
]
MEMORIES = ["test_triton_corrected_values.py", "test_triton_fast_weight.py", "test_triton_least_squares.py"]
PARTS = {
    "matrix_state": ["interpreted"],
    "attention": ATTENTION,
    "memories": MEMORIES,
    "the others": [
        ".",
        *(f"--ignore=tests/kernels/{name}" for name in ("interpreted", *ATTENTION, *MEMORIES)),
    ],
}
"""Folders and files of tests in parts of about the same length, which may go side by side."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux")
@pytest.mark.parametrize("where", PARTS.values(), ids=PARTS)
def test_kernels_hold_in_the_interpreter(where: list[str]) -> None:
    paths = [each if each.startswith("--") else f"tests/kernels/{each}" for each in where]
    command = [sys.executable, "-m", "pytest", *paths, "-m", "interpreter and not nightly"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

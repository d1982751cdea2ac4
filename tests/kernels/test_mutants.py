"""Errors put into the kernels are found."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is for Linux", allow_module_level=True)

from tests.kernels.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """linbench once more."""
    for room in ("linbench", "kernels"):
        shutil.copytree(ROOT / room, tmp_path / room, symlinks=True)
    return tmp_path


def run(copy: Path, *checks: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.kernels.mutants", *checks]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_without_a_mutation_every_check_passes(copy: Path) -> None:
    assert run(copy, *dict.fromkeys(mutant.check for mutant in MUTANTS.values())) == (0, "", "")


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutation_is_caught(copy: Path, mutant: Mutant) -> None:
    path = copy / "kernels" / "matrix_state" / "triton" / f"{mutant.file}.py"
    source = path.read_text(encoding="utf-8")
    assert mutant.old in source
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    code, out, err = run(copy, mutant.check)
    assert (code, err) == (1, "")
    assert out.startswith(mutant.check)

"""Errors put into the kernels are found."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is for Linux", allow_module_level=True)

from tests.helpers.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """linbench once more."""
    for room in ("linbench", "kernels"):
        shutil.copytree(ROOT / room, tmp_path / room, symlinks=True)
    return tmp_path


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    """It has imported what is not mutated."""
    command = [sys.executable, "-m", "tests.helpers.mutant_server"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def run(server: subprocess.Popen[str], copy: Path, *checks: str) -> tuple[int, str, str]:
    """Exit code, and what was printed."""
    assert server.stdin is not None
    assert server.stdout is not None
    print(copy, *checks, sep="\t", file=server.stdin, flush=True)
    return (
        int(server.stdout.readline()),
        (copy / "out").read_text(encoding="utf-8"),
        (copy / "err").read_text(encoding="utf-8"),
    )


def test_without_a_mutation_every_check_passes(server: subprocess.Popen[str], copy: Path) -> None:
    assert run(server, copy, *dict.fromkeys(mutant.check for mutant in MUTANTS.values())) == (0, "", "")


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutation_is_caught(server: subprocess.Popen[str], copy: Path, mutant: Mutant) -> None:
    path = copy / "kernels" / "matrix_state" / "triton" / f"{mutant.file}.py"
    source = path.read_text(encoding="utf-8")
    assert mutant.old in source
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    code, out, err = run(server, copy, mutant.check)
    assert (code, err) == (1, "")
    assert out.startswith(mutant.check)

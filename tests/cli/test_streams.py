"""However standard streams are, what a verb has done is kept, and its exit code says how it ended."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common import streams
from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.results.store import Store

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def stored(tmp_path: Path, a_result: Callable[..., Any]) -> Path:
    """A folder with results of two labels, one with letters that few streams have."""
    store = Store(tmp_path / "results")
    store.prepare()
    curve = [{"step": i, "tokens": 100 * i, "accuracy": i / 3, "loss": 1.0, "nll": 1.0} for i in (1, 2)]
    for label in ("deltanet", "mine→é日"):
        for seed in (0, 1):
            result = a_result(label, seed, 0.5 + 0.1 * seed, curve=curve)
            store.put(result | {"id": digest(result["id"]), "schema": SCHEMA})
    return tmp_path


def ended(folder: Path, line: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """A shell's line, in which L is linbench."""
    words = line.replace("L ", f"{sys.executable} -m linbench ")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        ["bash", "-c", words], cwd=folder, env=variables, capture_output=True, check=False, timeout=200
    )


@pytest.mark.parametrize("encoding", ["latin1", "ascii", "cp437", "cp932"])
def test_a_stream_of_few_letters_degrades_them(stored: Path, encoding: str) -> None:
    done = ended(stored, "L table", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    table = done.stdout.decode(encoding)
    assert "0.550 +- 0.071" in table.replace("±", "+-")
    assert "| mine" in table


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ("list models", 0),
        ("show model deltanet", 0),
        ("gate --baseline results --candidate results --format markdown", 5),
        ("--help", 0),
    ],
)
def test_a_stream_of_the_fewest_letters_takes_every_verb(stored: Path, verb: str, code: int) -> None:
    done = ended(stored, f"L {verb}", PYTHONIOENCODING="ascii")
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout.isascii()
    assert done.stdout


def test_a_run_whose_streams_have_few_letters(tmp_path: Path, tiny: list[str]) -> None:
    done = ended(
        tmp_path,
        f"L run mqar --model deltanet,attention {' '.join(tiny)}",
        PYTHONIOENCODING="ascii",
        MPLBACKEND="module://not_installed.backend",
    )
    assert done.returncode == 0, done.stderr
    assert b"drew results/figures/" in done.stderr
    assert done.stdout.isascii()


@pytest.mark.parametrize(("to", "why"), [(">&-", "it is closed"), ("> /dev/full", "No space left on device")])
def test_standard_output_that_takes_nothing(
    tmp_path: Path, tiny: list[str], snapshot: SnapshotAssertion, to: str, why: str
) -> None:
    """The training is kept, and its pictures are drawn."""
    done = ended(tmp_path, f"L run mqar --model deltanet {' '.join(tiny)} {to}")
    assert done.returncode == 6
    last = done.stderr.decode().splitlines()[-1]
    assert f": {why}" in last
    assert last == snapshot
    assert b"Traceback" not in done.stderr
    assert len(Store(tmp_path / "results").all()) == 1
    assert list((tmp_path / "results" / "figures").iterdir())


def test_standard_output_that_nothing_is_written_to_may_be_closed(stored: Path) -> None:
    done = ended(stored, "L table --save tables >&-")
    assert (done.returncode, (stored / "tables").is_dir()) == (0, True)


def test_no_stream_at_all(stored: Path) -> None:
    done = ended(stored, "L table --save tables <&- >&- 2>&-")
    assert (done.returncode, (stored / "tables").is_dir()) == (0, True)


def test_a_reader_that_has_seen_enough(stored: Path) -> None:
    done = ended(stored, "set -o pipefail; L table | head -1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"### mqar quick")
    done = ended(stored, "set -o pipefail; L table | true")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_goes_changes_no_verdict(stored: Path) -> None:
    """A gate can decide nothing by two seeds, so its exit code is 5 whoever reads its output."""
    done = ended(
        stored, "set -o pipefail; L gate --baseline results --candidate results --format markdown | true"
    )
    assert done.returncode == 5


def test_a_path_that_is_no_text(stored: Path) -> None:
    done = ended(stored, "L report --save $'\\xff.html'")
    assert (done.returncode, done.stdout) == (0, b"\xff.html\n")
    done = ended(
        stored,
        "mv results $'r\\xff'; L report --results $'r\\xff'; L table --results $'r\\xff' --save $'t\\xfe'; L"
        " figures --results $'r\\xff'",
    )
    assert done.returncode == 0, done.stderr
    assert b"r\xff/report.html" in done.stdout
    assert b"wrote t\\udcfe/" in done.stderr


def test_what_is_said_of_others_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    streams.tell("it failed: \x1b[31mred\n::error::x\x9b")
    assert capsys.readouterr().err == "it failed: \\x1b[31mred ::error::x\\x9b\n"

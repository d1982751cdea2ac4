"""`linbench submit`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.results.store import Store
from linbench.results.submission import Submission
from tests.helpers.suites import TINY

MINE = """
from torch import nn


class Mine(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)
"""

HERE = ("--suite", "tiny.yaml", "--device", "cpu", "--workers", "0")


@pytest.fixture
def others(linbench: Callable[..., Any], tmp_path: Path) -> Path:
    """A folder with results of the suite's models."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "mine.py").write_text(MINE)
    ended = linbench("sweep", "tiny.yaml", "--device", "cpu", "--workers", "0", "--results", "others")
    assert ended.code == 0, ended.err
    return tmp_path / "others"


@pytest.mark.slow
def test_a_layer_has_a_place_and_a_file(
    linbench: Callable[..., Any], others: Path, snapshot: SnapshotAssertion
) -> None:
    submit = ("submit", "./mine.py:Mine", "--against", "others", *HERE)
    dry = linbench(*submit, "--dry-run")
    assert (dry.code, dry.out, list(Path().glob("*.zip"))) == (0, "", [])
    assert dry.err.splitlines()[0] == snapshot(name="what is asked")
    assert "trained on" in dry.err
    ended = linbench(*submit)
    assert ended.code == 0, ended.err
    assert ended.out.split()[:6] == ["task", "quantity", "estimate", "rank", "of", "best"]
    (path,) = Path().glob("mine-*.submission.zip")
    assert ended.out.splitlines()[-1] == str(path)
    about = Submission(path).about
    assert about is not None
    assert about["layer"] == "./mine.py:Mine"
    assert about["sources"] == {"mine.py:Mine": {"mine": MINE}}
    assert about["rows"] == len(Submission(path).all()) == len(Store("results").all())
    again = linbench(*submit, "--json")
    said = json.loads(again.out)
    assert (again.code, said["submission"]) == (0, str(next(Path().glob("*.zip"))))
    assert linbench("results", "verify", str(path)).out == f"{path}: all sound\n"
    shown = linbench("table", "--results", str(path))
    assert (shown.code, "./mine.py:Mine (submitted as" in shown.out) == (0, True)


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "nothing"),
        ("submit", "deltanet,gla", "--device", "cpu"),
        ("submit", "deltanet", "--suite", "leaderbord"),
        ("submit", "deltanet", "--save", "nowhere", "--device", "cpu"),
        ("submit", "deltanet", "--results", "reference", "--device", "cpu"),
        ("submit", "deltanet", "--against", "nowhere", "--device", "cpu"),
    ],
    ids=["no layer", "two layers", "no suite", "no folder", "read-only", "no others"],
)
def test_a_mistake_is_told_before_anything_runs(
    linbench: Callable[..., Any], words: tuple[str, ...], snapshot: SnapshotAssertion
) -> None:
    ended = linbench(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == snapshot

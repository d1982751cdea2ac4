"""Nothing that is finished is lost, whoever is killed and however many are at work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def seen(folder: Path, *words: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.helpers.kills", str(folder), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("what", ["kills", "ladders"])
@pytest.mark.parametrize(("count", "through"), [(8, 1), pytest.param(100, 2, marks=pytest.mark.nightly)])
def test_kills_corrupt_lose_and_repeat_nothing(tmp_path: Path, what: str, count: int, through: int) -> None:
    found = seen(tmp_path, what, str(count), "0")
    assert found.pop("through") >= through
    assert found.pop("kills") == count
    assert found == dict.fromkeys(("failed", "corrupt", "lost", "rerun", "other", "left"), 0)


def test_ten_launchers_on_one_folder_run_each_cell_once(tmp_path: Path) -> None:
    assert seen(tmp_path, "launchers", "10", "0") == {"failed": 0, "results": 20, "run": 20, "twice": 0}

"""What runs on a pull request: action.yml and the script behind it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from linbench.policy import Policy, load

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "compare.sh"

SUITE = """
about: a few seconds
tasks: [mqar]
models: [deltanet]
set: {task.seq_len: 16, task.kv_pairs: 2, task.vocab_size: 16, model.d_model: 32, model.heads: 2, model.layers: 1, protocol.batch_size: 32,
  protocol.tokens: 51200, protocol.lr: 0.01, protocol.evaluations: 5, protocol.validation_examples: 32, protocol.test_examples: 256}
"""

MINE = '''
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.blocks.matrix_mixer import MatrixMixer

class Mine(MatrixMixer):
    """A delta rule."""

    name = "mine"

    def recur(self, x, q, k, v, memory):
        return matrix_state(q, k, VALUES, update=Delta(x.x.new_full(v.shape[:-1], 1.0)), state=memory)
'''


def test_the_action_gives_the_script_what_it_takes() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (step,) = [step for step in action["runs"]["steps"] if ".ci/compare.sh" in step.get("run", "")]
    given = dict(re.findall(r'--([a-z]+) "\$([A-Z]+)"', step["run"]))
    usage = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    assert set(given) == set(re.findall(r"^  --([a-z]+) ", usage, re.MULTILINE))
    assert {step["env"][variable] for variable in given.values()} == {f"${{{{ inputs.{name} }}}}" for name in given}
    assert set(action["inputs"]) == {*given, "packages", "artifact"}


def test_the_policy_of_the_gate_on_linbench_itself_is_one_and_stricter() -> None:
    (used,) = re.findall(r"--policy (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert load(ROOT / used).alpha < Policy().alpha


def test_the_twelve_lines_are_twelve_and_name_inputs() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    lines = page.split("```yaml\n")[1].split("```")[0]
    assert len(lines.splitlines()) == 12
    (job,) = yaml.safe_load(lines)["jobs"].values()
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (used,) = [step for step in job["steps"] if "linbench@" in step["uses"]]
    assert set(used["with"]) <= set(action["inputs"])


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--models"], "compare.sh: --models needs a value."), (["--modles", "x"], "compare.sh: unknown option --modles"), (["--models", "x"], "usage:")],
)
def test_bad_input_is_refused(words: list[str], said: str) -> None:
    ended = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "deltanet,gla", "--rounds", "0"], "compare.sh: --rounds 0: a whole number of at least 1 would do.\n"),
        (["--models", "delatnet,gla"], "compare.sh: delatnet cannot be compared on this suite: unknown model 'delatnet'; did you mean 'deltanet'?"),
        (["--models", "deltanet,gla", "--policy", "nope.yaml"], "compare.sh: cannot read the policy nope.yaml: No such file or directory.\n"),
        (["--models", "deltanet,gla", "--time", "abc"], "compare.sh: --time takes whole numbers from 1 on, such as 64,256, not 'abc'.\n"),
        (["--models", "deltanet,gla", "--workers", "two"], "compare.sh: --workers two: a whole number would do.\n"),
        (["--models", "deltanet,gla", "--base", "nosuchref"], "compare.sh: --base nosuchref is no commit of this repository, nor one that origin has.\n"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_trained(
    repository: Callable[..., str], script: Callable[..., Any], tmp_path: Path, words: list[str], said: str
) -> None:
    base = repository({"tiny.yaml": SUITE})
    ended = script(*words, *([] if "--base" in words else ["--base", base]))
    assert (ended.returncode, ended.stderr.startswith(said), ended.stderr.count("\n")) == (2, True, 1)
    assert not list(tmp_path.glob("out/*.results"))


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """Somebody's repository: commits files, and tells which commit that is."""
    place = tmp_path / "theirs"
    place.mkdir()
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]

    def git(*words: str) -> str:
        return subprocess.run(["git", *who, *words], cwd=place, capture_output=True, text=True, check=True).stdout.strip()

    def commit(files: dict[str, str]) -> str:
        for name, text in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git("add", ".")
        git("commit", "-qm", "a change")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return commit


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """What a job runs there."""
    around = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    fixed = ["--suite", "tiny.yaml", "--device", "cpu", "--workers", "0", "--out", str(tmp_path / "out")]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([SCRIPT, *fixed, *words], cwd=tmp_path / "theirs", env=around, capture_output=True, text=True, check=False)

    return run


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_change_that_forgets_is_red_from_end_to_end(repository: Callable[..., str], script: Callable[..., Any], tmp_path: Path) -> None:
    """Three variants, six seeds, base and head in turn: in the head one of them writes nothing."""
    base = repository({"mine.py": MINE.replace("VALUES", "v"), "tiny.yaml": SUITE})
    repository({"mine.py": MINE.replace("VALUES", "0 * v")})
    ended = script("--models", "./mine.py:Mine,deltanet,linear_attention", "--rounds", "2", "--base", base, "--time", "16")
    assert ended.returncode == 4, ended.stderr
    rounds = [line for line in ended.stderr.splitlines() if line.startswith("compare.sh: ")]
    trained = [f"{side}, seeds {seeds}" for side, seeds in (("base", "0,1,2"), ("head", "0,1,2"), ("head", "3,4,5"), ("base", "3,4,5"))]
    timed = [f"{side}, bench {verb}" for verb in ("length", "decode") for side in ("base", "head")]
    assert rounds == [f"compare.sh: {words}" for words in trained + timed]
    out = tmp_path / "out"
    comment = (out / "comment.md").read_text(encoding="utf-8")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == comment
    assert "### Gate: 3 cells gated, 1 worse than the baseline." in comment
    assert "- mqar native, ./mine.py:Mine got worse: accuracy was " in comment
    assert "### Beside ./mine.py:Mine, native" in comment
    assert "deltanet native, training at T 16" in comment
    assert "is not stored for" not in ended.stderr
    stored = {side: [json.loads(path.read_text()) for path in (out / f"{side}.results").glob("*.json")] for side in ("base", "head")}
    cells = {side: [result for result in results if "cell" in result] for side, results in stored.items()}
    assert {side: len(results) for side, results in cells.items()} == {"base": 18, "head": 18}
    before, after = ({r["cell"]["seed"]: r["metrics"] for r in results if r["label"] == "deltanet"} for results in cells.values())
    assert before == after, "what did not change is the same to the bit"
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    assert not (out / "base.tree").exists()


BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    about = {"METADATA": "Metadata-Version: 2.1\\nName: theirs\\nVersion: 1\\n", "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    with zipfile.ZipFile(f"{folder}/theirs-1-py3-none-any.whl", "w") as wheel:
        wheel.write("src/theirs.py", "theirs.py")
        for name, text in about.items():
            wheel.writestr(f"theirs-1.dist-info/{name}", text)
        wheel.writestr("theirs-1.dist-info/RECORD", "")
    return "theirs-1-py3-none-any.whl"
"""


@pytest.mark.slow
def test_a_package_is_installed_and_without_a_base_nothing_is_gated(repository: Callable[..., str], script: Callable[..., Any], tmp_path: Path) -> None:
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    repository({"pyproject.toml": project, "backend.py": BACKEND, "src/theirs.py": MINE.replace("VALUES", "v"), "tiny.yaml": SUITE.replace("51200", "5120")})
    ended = script("--models", "theirs:Mine,deltanet", "--seeds", "0-1")
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in (tmp_path / "out" / "head.packages").glob("*.py")] == ["theirs.py"]
    comment = (tmp_path / "out" / "comment.md").read_text(encoding="utf-8")
    assert "### Beside theirs:Mine, native" in comment
    assert "Gate" not in comment
    assert len(list((tmp_path / "out" / "head.results").glob("*.json"))) == 4


@pytest.mark.slow
def test_what_linbench_refuses_ends_the_script(repository: Callable[..., str], script: Callable[..., Any]) -> None:
    repository({"tiny.yaml": SUITE})
    ended = script("--models", "deltanet,gla", "--seeds", "x")
    assert ended.returncode == 2
    assert "compare.sh: seeds are numbers such as 0,1,2 or 0-4, not 'x'" in ended.stderr

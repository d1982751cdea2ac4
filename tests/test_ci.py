"""The job of a pull request: action.yml and the script behind it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from linbench.cli import pull_request
from linbench.experiments.cell import Cell
from linbench.experiments.suite import expand, narrow
from linbench.experiments.suite import load as load_suite
from linbench.results.gate_policy import Policy, load
from linbench.results.matching import jitter_of
from linbench.results.store import Store
from tests.helpers.records import a_point, a_record

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "compare.sh"

SUITE = """
about: a few seconds
tasks: [mqar]
models: [deltanet]
set:
  {task.seq_len: 16, task.kv_pairs: 2, task.vocab_size: 16, model.d_model: 32, model.heads: 2,
  model.layers: 1, protocol.batch_size: 32, protocol.tokens: 51200, protocol.lr: 0.01,
  protocol.evaluations: 5, protocol.validation_examples: 32, protocol.test_examples: 256}
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
    assert {step["env"][variable] for variable in given.values()} == {
        f"${{{{ inputs.{name} }}}}" for name in given
    }
    assert set(action["inputs"]) == {*given, "packages", "artifact"}


def test_no_input_becomes_part_of_a_script_and_no_module_is_taken_from_the_checkout() -> None:
    """An expression in `run` is pasted there as text before a shell reads it."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    runs = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert len(runs) == 2
    assert not [run for run in runs if "${{" in run]
    assert not [run for run in runs if re.search(r"python (?!-P)", run)]
    for words in runs:
        assert not re.findall(r'(?<!")\$[A-Z_]+', words), "unquoted"
    (upload,) = [step["with"]["path"] for step in action["runs"]["steps"] if "uses" in step]
    assert "*.results" not in upload, "what a pull request commits beside the copies is not uploaded"


def test_the_policy_of_the_gate_on_linbench_itself_is_one_and_stricter() -> None:
    (used,) = re.findall(r"--policy (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert load(ROOT / used).alpha < Policy().alpha


def test_the_lowest_versions_that_are_tried_are_those_that_are_allowed() -> None:
    def constraints(end: str) -> list[str]:
        return subprocess.run(
            [sys.executable, ROOT / ".ci" / "bounds.py", end], capture_output=True, text=True, check=True
        ).stdout.split()

    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    bounds = [one.partition(";")[0].replace(">=", "==").strip() for one in allowed]
    pinned = [
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
        if line.startswith(("torch==", "triton=="))
    ]
    assert constraints("lowest") == [
        *(one for one in bounds if not one.startswith(("torch==", "triton=="))),
        *pinned,
    ]
    assert constraints("highest") == pinned
    for step in (
        "with_versions lowest",
        "with_versions highest",
        ".ci/smoke.sh",
        'sys.modules["triton"] = None',
    ):
        assert step in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_twelve_lines_are_twelve_and_name_inputs() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    lines = page.split("```yaml\n")[1].split("```")[0]
    assert len(lines.splitlines()) == 12
    (job,) = yaml.safe_load(lines)["jobs"].values()
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (used,) = [step for step in job["steps"] if "linbench@" in step["uses"]]
    assert set(used["with"]) <= set(action["inputs"])


def test_every_job_of_the_page_has_least_permissions_and_versions() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    jobs = [
        job
        for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if "jobs:" in text
        for job in _jobs(text)
    ]
    assert len(jobs) == 2
    for job in jobs:
        trains = any("linbench@" in step.get("uses", "") for step in job["steps"])
        assert job["permissions"] == ({"contents": "read"} if trains else {"pull-requests": "write"}), (
            "code of a pull request has no right to write"
        )
        for used in (step["uses"] for step in job["steps"] if "uses" in step):
            assert re.fullmatch(r"\S+@v\d+(\.\d+)*", used), f"{used} is no version"


def schema(name: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Hold a file to a schema that comes with check-jsonschema."""
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{name}", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_action_and_what_the_page_shows_keep_the_schemas_of_their_hosts(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    texts = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    whole, comment = (text for text in texts if "jobs:" in text)
    (gitlab,) = (text for text in texts if "image:" in text)
    _, _, second = comment.partition("jobs:\n")
    files = {"github-workflows": [whole, whole + second], "gitlab-ci": [gitlab]}
    ended = [schema("github-actions", ROOT / "action.yml")]
    for name, found in files.items():
        for text in found:
            path = tmp_path / f"{len(ended)}.yml"
            path.write_text(text)
            ended.append(schema(name, path))
    assert [(one.returncode, one.stdout.strip()) for one in ended] == [(0, "ok -- validation done")] * 4
    path.write_text(gitlab.replace("script:", "scripts:"))
    assert schema("gitlab-ci", path).returncode != 0


def test_what_the_page_gives_gitlab_and_pre_commit_is_yaml_with_options_that_are_there() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (job,) = [block["linbench"] for block in blocks if "linbench" in block]
    usage = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in job["script"] if "compare.sh" in line]
    given = set(re.findall(r" --([a-z]+) ", line))
    assert {"models", "base", "out"} <= given <= set(re.findall(r"^  --([a-z]+) ", usage, re.MULTILINE))
    ((hook,),) = [block["repos"][0]["hooks"] for block in blocks if "repos" in block]
    assert hook["entry"].startswith("linbench check ./")
    assert hook["pass_filenames"] is False


def _jobs(text: str) -> list[Any]:
    """Return the jobs of a workflow, or of a part of one."""
    found = yaml.safe_load(text)
    return [
        job | {"permissions": job.get("permissions", found.get("permissions"))}
        for job in found["jobs"].values()
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models"], "compare.sh: --models needs a value."),
        (["--modles", "x"], "compare.sh: unknown option --modles"),
        (["--models", "x"], "usage:"),
    ],
)
def test_bad_input_is_refused(words: list[str], said: str) -> None:
    ended = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr


PLAN = [
    "answer",
    "models",
    "suite",
    "seeds",
    "rounds",
    "form",
    "against",
    "device",
    "policy",
    "workers",
    "time",
    "gated",
    "same",
]
"""The arguments by which the script asks linbench to plan, in order."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"models": "delatnet"}, ["delatnet cannot be compared", "did you mean 'deltanet'?"]),
        ({"models": "--help"}, ["unknown model '--help'"]),
        ({"suite": "--help"}, ["unknown suite '--help'"]),
        ({"seeds": "--help"}, ["0,1,2 or 0-4", "'--help'"]),
        ({"seeds": "x"}, ["0,1,2 or 0-4", "'x'"]),
        ({"rounds": "0"}, ["--rounds", "1 to 1,000", "'0'"]),
        ({"rounds": "9" * 5000}, ["--rounds", "1 to 1,000", "'999"]),
        ({"form": "--help"}, ["unknown form '--help'"]),
        ({"against": "--help"}, ["no results in --help"]),
        ({"device": "--help"}, ["unknown device '--help'"]),
        ({"policy": "nope.yaml"}, ["policy nope.yaml", "No such file"]),
        ({"policy": "--help"}, ["policy --help"]),
        ({"workers": "two"}, ["--workers", "0 to 1,024", "'two'"]),
        ({"time": "abc"}, ["--time", "'abc'"]),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    changed: dict[str, str],
    said: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SUITE)
    usual = {"answer": "plan", "models": "deltanet,gla", "suite": "tiny.yaml", "seeds": "0-5", "rounds": "3"}
    given = dict.fromkeys(PLAN, "") | usual | {"device": "cpu", "gated": "gated", "same": "yes"} | changed
    monkeypatch.setattr(sys, "argv", ["pull_request", "plan", *given.values()])
    with pytest.raises(SystemExit) as ended:
        pull_request.main()
    told = capsys.readouterr().err
    assert (ended.value.code, told.startswith("compare.sh: "), told.count("\n")) == (2, True, 1)
    assert not [words for words in said if words not in told]
    assert not Path("plan").exists()


def test_every_option_reaches_the_plan_as_it_was_given(
    repository: Callable[..., str],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Put in place of Python a program that notes its arguments and refuses to plan."""
    repository({"tiny.yaml": SUITE})
    noting = tmp_path / "python"
    noting.write_text(
        f'#!/bin/sh\ncase "$*" in *pull_request*) printf "%s\\n" "$@" > {tmp_path}/noted; exit 2;; esac\n'
    )
    noting.chmod(0o755)
    given = {
        "models": "--help",
        "suite": "a b",
        "seeds": "$(touch ran)",
        "rounds": "-1",
        "form": "`touch ran`",
    }
    given |= {"against": "*", "device": "'", "policy": '"', "workers": ";", "time": "--"}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    ended = script(*words, python=str(noting))
    assert (ended.returncode, ended.stdout) == (2, "")
    noted = (tmp_path / "noted").read_text().splitlines()
    assert noted[:4] == ["-P", "-m", "linbench.cli.pull_request", "plan"]
    assert noted[5:] == [*given.values(), "", ""]
    assert not (tmp_path / "theirs" / "ran").exists()


@pytest.mark.slow
def test_a_base_that_is_nowhere_ends_the_script(
    repository: Callable[..., str],
    script: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    repository({"tiny.yaml": SUITE})
    ended = script("--models", "deltanet,gla", "--base", "nosuchref")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr == snapshot
    assert not list(tmp_path.glob("out/*.results"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        "--upload-pack=touch {};git-upload-pack",
        "-q",
        "--help",
        "main:refs/heads/forged",
        "+main:forged",
        "refs/heads/*",
        "a b",
        "$(touch {})",
        "`touch {}`",
    ],
)
def test_a_base_is_one_ref_and_never_an_option_of_git(
    repository: Callable[..., str],
    script: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
    given: str,
) -> None:
    """If the origin is a folder, git runs the program that it is told to fetch with."""
    repository({"tiny.yaml": SUITE})
    theirs, said = tmp_path / "theirs", given.format(tmp_path / "ran")
    subprocess.run(["git", "clone", "-q", "--bare", theirs, tmp_path / "origin"], check=True)
    subprocess.run(["git", "remote", "add", "origin", tmp_path / "origin"], cwd=theirs, check=True)
    ended = script("--models", "deltanet,gla", "--base", said)
    assert ended.returncode == 2
    assert ended.stderr.count(said) == 1
    assert ended.stderr.replace(said, "GIVEN") == snapshot
    assert not (tmp_path / "ran").exists()
    refs = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)"], cwd=theirs, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(refs) == 1


@pytest.mark.slow
def test_a_base_that_only_origin_has_is_fetched(
    repository: Callable[..., str],
    script: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    repository({"tiny.yaml": SUITE})
    theirs = tmp_path / "theirs"
    subprocess.run(["git", "clone", "-q", "--bare", theirs, tmp_path / "origin"], check=True)
    subprocess.run(["git", "branch", "-q", "other/base"], cwd=tmp_path / "origin", check=True)
    subprocess.run(["git", "remote", "add", "origin", tmp_path / "origin"], cwd=theirs, check=True)
    ended = script("--models", "deltanet,gla", "--base", "other/base")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr == snapshot
    assert not list(tmp_path.glob("out/*.results"))


EVIL = "import pathlib; pathlib.Path({!r}).touch()"


@pytest.mark.slow
@pytest.mark.parametrize("place", [".", ""])
def test_no_module_of_ours_is_taken_from_the_checkout(
    repository: Callable[..., str],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    snapshot: SnapshotAssertion,
    place: str,
) -> None:
    """Names of ours, of Python's and of pip's in the current folder, with an empty entry or the folder itself
    where modules are looked for."""
    evil = EVIL.format(str(tmp_path / "ran"))
    base = repository(
        {
            "tiny.yaml": SUITE,
            **{f"{name}.py": evil for name in ("pip", "linbench", "json", "torch", "sitecustomize")},
        }
    )
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "theirs" / "json.py"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    ended = script(
        "--models", "deltanet,gla", "--base", base, path=f"{ROOT}:{place}" if not place else str(ROOT)
    )
    assert ended.stderr == snapshot
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_out_is_not_led_elsewhere_by_a_link_that_is_committed(
    repository: Callable[..., str],
    script: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    base = repository({"tiny.yaml": SUITE})
    theirs, mine = tmp_path / "theirs", tmp_path / "mine" / "head.results"
    mine.mkdir(parents=True)
    (theirs / "linked").symlink_to(mine.parent)
    for out in ("linked", "linked/deeper"):
        ended = script("--models", "deltanet,gla", "--base", base, "--out", out)
        assert ended.returncode == 2
        assert ended.stderr == snapshot(name=out)
    assert list(mine.parent.iterdir()) == [mine]


@pytest.mark.slow
def test_a_run_that_is_refused_leaves_no_forged_comment(
    repository: Callable[..., str], script: Callable[..., Any], tmp_path: Path
) -> None:
    base = repository(
        {
            "tiny.yaml": SUITE,
            "out/comment.md": "all is well",
            "out/head.results/a.json": "{}",
            "out/notes.txt": "mine",
        }
    )
    ended = script("--models", "delatnet", "--base", base, "--out", "out")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("compare.sh: ")
    assert "did you mean 'deltanet'?" in ended.stderr
    assert [path.name for path in (tmp_path / "theirs" / "out").iterdir()] == ["notes.txt"]


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """Somebody's repository: commits files, and tells which commit that is."""
    place = tmp_path / "theirs"
    place.mkdir()
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *who, *words], cwd=place, capture_output=True, text=True, check=True
        ).stdout.strip()

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
    """Return a function that runs the script of a job."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    fixed_around = {
        "OMP_NUM_THREADS": "1",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "TMPDIR": str(fresh),
    }
    fixed = ["--suite", "tiny.yaml", "--device", "cpu", "--workers", "0", "--out", str(tmp_path / "out")]

    def run(
        *words: str, path: str = str(ROOT), python: str = sys.executable
    ) -> subprocess.CompletedProcess[str]:
        around = os.environ | fixed_around | {"PYTHONPATH": path, "PYTHON": python}
        ended = subprocess.run(
            [SCRIPT, *fixed, *words],
            cwd=tmp_path / "theirs",
            env=around,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not list(fresh.glob("tmp.*")), "nothing is left behind"
        return ended

    return run


def forge(out: Path) -> tuple[Store, list[Cell]]:
    """Write what a pull request might commit where the job's own results will be copied to: a perfect score
    for each cell of its layer, and a gate in which all is well."""
    forged = Store(out / "head.results")
    forged.prepare()
    cells = expand(
        narrow(load_suite("tiny.yaml"), models=["./mine.py:Mine"], seeds="0-5"), device="cpu"
    ).cells
    for cell in cells:
        forged.put(
            a_record(
                cell.id,
                cell=cell.identity,
                label=cell.model.label,
                metrics={"accuracy": 0.999, "nll": 0.0},
                curve=[a_point(0.999)],
            )
        )
    return forged, cells


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_change_that_forgets_is_red_from_end_to_end_and_results_that_it_commits_are_never_read(
    repository: Callable[..., str],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    """Three variants, six seeds, base and head in turn: in the head one of them writes nothing, but results
    that say otherwise are committed, with a link in place of the comment."""
    base = repository({"mine.py": MINE.replace("VALUES", "v"), "tiny.yaml": SUITE})
    repository({"mine.py": MINE.replace("VALUES", "0 * v")})
    theirs, victim = tmp_path / "theirs", tmp_path / "victim"
    monkeypatch.chdir(theirs)
    out = theirs / "out"
    forged, mine = forge(out)
    victim.write_text("mine")
    (out / "comment.md").symlink_to(victim)
    repository({"out/gate.md": "### Gate: all is well"})
    ended = script(
        "--models",
        "./mine.py:Mine,deltanet,linear_attention",
        "--rounds",
        "2",
        "--base",
        base,
        "--time",
        "16",
        "--out",
        "out",
    )
    assert ended.returncode == 4, ended.stderr
    rounds = [line for line in ended.stderr.splitlines() if line.startswith("compare.sh: ")]
    trained = [
        f"{side}, seeds {seeds}"
        for side, seeds in (("base", "0,1,2"), ("head", "0,1,2"), ("head", "3,4,5"), ("base", "3,4,5"))
    ]
    timed = [f"{side}, bench {verb}" for verb in ("length", "decode") for side in ("base", "head")]
    assert rounds == [f"compare.sh: {words}" for words in trained + timed]
    assert victim.read_text() == "mine"
    assert not (out / "comment.md").is_symlink()
    kept = [forged.get(cell.id) for cell in mine]
    assert all(result and result["metrics"]["accuracy"] < 0.5 for result in kept)
    comment = (out / "comment.md").read_text(encoding="utf-8")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == comment
    lines = comment.splitlines()
    assert next(line for line in lines if line.startswith("### Gate: ")) == snapshot(name="gate")
    worse = next(line for line in lines if line.startswith("- mqar native, ./mine.py:Mine "))
    assert re.sub(r"\d\.\d+", "N", worse) == snapshot(name="worse")
    assert "### Beside ./mine.py:Mine, native" in comment
    (trained,) = [line for line in lines if line.startswith("| deltanet native, training ")]
    assert " T 16, " in trained
    assert "is not stored for" not in ended.stderr
    stored = {
        side: [json.loads(path.read_text()) for path in (out / f"{side}.results").glob("*.json")]
        for side in ("base", "head")
    }
    cells = {side: [result for result in results if "cell" in result] for side, results in stored.items()}
    assert {side: len(results) for side, results in cells.items()} == {"base": 18, "head": 18}
    before, after = (
        [result for result in results if result["label"] != "./mine.py:Mine"] for results in cells.values()
    )
    assert len(before) == 12
    assert sorted(before, key=lambda r: r["id"]) == sorted(after, key=lambda r: r["id"]), (
        "what linbench ships is trained once, and timed to the bit alike"
    )
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    trees = subprocess.run(
        ["git", "worktree", "list"], cwd=tmp_path / "theirs", capture_output=True, text=True, check=True
    ).stdout
    assert len(trees.splitlines()) == 1


BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    about = {
        "METADATA": "Metadata-Version: 2.1\\nName: theirs\\nVersion: 1\\n",
        "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(f"{folder}/theirs-1-py3-none-any.whl", "w") as wheel:
        wheel.write("src/theirs.py", "theirs.py")
        for name, text in about.items():
            wheel.writestr(f"theirs-1.dist-info/{name}", text)
        wheel.writestr("theirs-1.dist-info/RECORD", "")
    return "theirs-1-py3-none-any.whl"
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_package_is_installed_and_without_a_base_nothing_is_gated(
    repository: Callable[..., str], script: Callable[..., Any], tmp_path: Path
) -> None:
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    repository(
        {
            "pyproject.toml": project,
            "backend.py": BACKEND,
            "src/theirs.py": MINE.replace("VALUES", "v"),
            "tiny.yaml": SUITE.replace("51200", "5120"),
        }
    )
    ended = script("--models", "theirs:Mine,deltanet", "--seeds", "0-1", "--rounds", "1")
    assert ended.returncode == 0, ended.stderr
    comment = (tmp_path / "out" / "comment.md").read_text(encoding="utf-8")
    assert "### Beside theirs:Mine, native" in comment
    assert "Gate" not in comment
    assert len(list((tmp_path / "out" / "head.results").glob("*.json"))) == 4


PLAIN = '''
from torch import nn

class Mine(nn.Module):
    """Knows nothing of linbench."""

    def __init__(self, dim):
        super().__init__()
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]
'''


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_plain_module_and_one_of_linbench_in_a_suite_that_sets_what_the_latter_alone_has(
    repository: Callable[..., str],
    script: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    base = repository({"mine.py": PLAIN, "tiny.yaml": SUITE.replace("51200", "5120")})
    repository({"mine.py": PLAIN.replace("return", "return 0 *")})
    ended = script(
        "--models",
        "./mine.py:Mine,deltanet[conv=0]",
        "--seeds",
        "0-1",
        "--rounds",
        "1",
        "--form",
        "native",
        "--base",
        base,
    )
    assert ended.returncode == 5, ended.stderr
    for side in ("base", "head"):
        stored = Store(tmp_path / "out" / f"{side}.results").all()
        assert {result["label"] for result in stored} == {"./mine.py:Mine", "deltanet[conv=0]"}
    gate = (tmp_path / "out" / "gate.md").read_text(encoding="utf-8")
    assert [line for line in gate.splitlines() if line.startswith("- ")] == snapshot


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_base_of_a_plain_module_is_trained_once_and_tells_its_noise_before_the_head_runs(
    repository: Callable[..., str], script: Callable[..., Any], tmp_path: Path
) -> None:
    """The head squares what the base gives, which it did not learn to read."""
    base = repository(
        {"mine.py": PLAIN, "tiny.yaml": SUITE.replace("51200", "5120").replace("model.heads: 2,", "")}
    )
    repository({"mine.py": PLAIN.replace("return self.gru(x)[0]", "return self.gru(x)[0] ** 2")})
    words = ["--models", "./mine.py:Mine", "--form", "native", "--base", base, "--jitter", "1e-6"]
    words += ["--cache", str(tmp_path / "cache")]
    for known in (0, 6):
        ended = script(*words)
        told = [line for line in ended.stderr.splitlines() if line.startswith("compare.sh: ")]
        numbers = [line.rpartition(" ")[2] for line in told if "seeds" in line]
        assert numbers == ["0-5", "0,1", "2,3", "4,5"]
        assert [line.split()[1] for line in told if "cache" in line] == [str(known)] * 2
        before, _, _ = ended.stderr.partition("compare.sh: head")
        assert "(twins)" in before, ended.stderr
        stored = Store(tmp_path / "out" / "base.results").all()
        assert sorted(map(jitter_of, stored)) == [0.0] * 6 + [1e-6] * 6
    assert not any(map(jitter_of, Store(tmp_path / "out" / "head.results").all()))
    (tmp_path / "theirs" / "kept").mkdir()
    ended = script(*words[:-1], "kept")
    assert ended.returncode == 2
    assert "lies in the checkout" in ended.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_what_the_base_does_not_have_is_new_and_what_it_cannot_import_is_no_baseline(
    repository: Callable[..., str],
    script: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    tiny = {"tiny.yaml": SUITE.replace("51200", "5120").replace("model.heads: 2,", "")}
    without = repository(tiny)
    broken = repository({"mine.py": "import nowhere"})
    repository({"mine.py": PLAIN})
    words = ["--models", "./mine.py:Mine", "--seeds", "0-1", "--form", "native"]
    ended = script(*words, "--base", without)
    assert ended.returncode == 0, ended.stderr
    (not_gated,) = [line for line in ended.stderr.splitlines() if "not gated" in line]
    assert not_gated == snapshot(name="new")
    assert "### Gate: nothing gated" in (tmp_path / "out" / "comment.md").read_text(encoding="utf-8")
    ended = script(*words, "--base", broken)
    assert ended.returncode == 5
    assert not (tmp_path / "out" / "comment.md").exists(), "that of the run before"
    assert ended.stderr == snapshot(name="broken")

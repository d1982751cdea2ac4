from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench import models as shipped_models
from linbench import tasks as shipped_tasks
from linbench.common.errors import PluginError, UserError
from linbench.experiments.registry import PLUGINS_VARIABLE, registry
from tests.helpers.cells import plan

MIXER = """
from linbench.models.deltanet import DeltaNet

class Mine(DeltaNet):
    '''My own.'''
    name = "{name}"
"""
TASK = """
from linbench.tasks.mqar import MQAR

class Asked(MQAR):
    '''Asked by me.'''
    name = "asked"
"""
MODULE = """
from torch import nn

class Plain(nn.Module):
    def __init__(self, dim, layer_idx, taps=2):
        super().__init__()
        self.inner = nn.Linear(dim, dim)
        self.taps, self.layer_idx = taps, layer_idx

    def forward(self, x):
        return self.inner(x), None
"""


@pytest.fixture(autouse=True)
def _scanned_anew() -> Iterator[None]:
    registry.cache_clear()
    yield
    registry.cache_clear()


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Files in a plugin folder."""

    def write(**files: str) -> Path:
        monkeypatch.setenv(PLUGINS_VARIABLE, str(tmp_path))
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        return tmp_path

    return write


def test_what_linbench_ships_is_there_without_problems() -> None:
    assert {"attention", "linear_attention", "deltanet", "gated_deltanet"} <= set(registry("model").entries)
    assert "mqar" in registry("task").entries
    assert registry("model").problems == registry("task").problems == []


def test_a_file_in_the_plugin_folder_is_found(plugins: Callable[..., Path]) -> None:
    plugins(mine=MIXER.format(name="mine"), asked=TASK)
    assert registry("model").find("mine").digest
    assert registry("task").find("asked").cls.__name__ == "Asked"
    assert registry("model").problems == []


def test_a_file_dropped_among_the_shipped_ones_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, name, text in (
        (shipped_models, "dropped_mixer", MIXER.format(name="dropped_mixer")),
        (shipped_tasks, "dropped_task", TASK.replace('"asked"', '"dropped_task"')),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / name)])
    assert registry("model").find("dropped_mixer").source == "linbench"
    assert registry("task").find("dropped_task").source == "linbench"
    (cell,) = plan("dropped_task", ["dropped_mixer"], device="cpu")
    assert (cell.task.name, cell.model.label) == ("dropped_task", "dropped_mixer")


def test_what_fails_to_import_hurts_nobody_else(
    plugins: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    plugins(
        broken="import torch\nraise RuntimeError('no licence')\n",
        garbled="def (",
        mine=MIXER.format(name="mine"),
    )
    found = registry("model")
    assert {problem.name: problem.reason for problem in found.problems} == snapshot
    assert found.find("mine")
    assert found.find("attention")
    with pytest.raises(
        UserError, match=r"model 'broken' from .*broken\.py cannot be used: broken\.py line 2"
    ):
        found.find("broken")


def test_a_shipped_name_stands_and_the_newcomer_is_told(
    plugins: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    plugins(mine=MIXER.format(name="attention"))
    found = registry("model")
    assert found.find("attention").source == "linbench"
    assert [(p.name, p.reason) for p in found.problems] == snapshot


def test_of_two_that_claim_one_name_neither_is_used(plugins: Callable[..., Path]) -> None:
    plugins(
        one=MIXER.format(name="mine"),
        other=MIXER.format(name="mine"),
        third=MIXER.format(name="mine"),
        asked=TASK,
    )
    found = registry("model")
    assert "mine" not in found.entries
    assert [problem.name for problem in found.problems] == ["mine"] * 3
    with pytest.raises(UserError, match="use the path of the one you mean"):
        found.find("mine")
    assert registry("task").find("asked")


@pytest.mark.parametrize("name", ["two words", "a+b", "3x", ""])
def test_a_name_that_a_pattern_could_not_hold_is_a_problem(plugins: Callable[..., Path], name: str) -> None:
    plugins(mine=MIXER.format(name=name))
    assert [problem.name for problem in registry("model").problems] == ["mine"]


def test_a_plain_module_with_a_name_is_found_and_a_file_without_any_is_told(
    plugins: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    plugins(
        plain=MODULE.replace("class Plain(nn.Module):", "class Plain(nn.Module):\n    name = 'plain'"),
        nameless=MODULE,
        asked=TASK,
    )
    found = registry("model")
    assert found.find("plain").cls.is_plain_module
    assert [(problem.name, problem.reason) for problem in found.problems] == snapshot


def test_a_helper_in_the_plugin_folder_is_no_problem(
    plugins: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    plugins(mine="import helper\n" + MIXER.format(name="mine"), helper="gain = 1\n", idle="gain = 1\n")
    assert [(problem.name, problem.reason) for problem in registry("task").problems] == snapshot
    assert registry("model").find("mine").digest


def test_a_name_is_free_although_a_file_of_that_name_failed(plugins: Callable[..., Path]) -> None:
    plugins(mine="raise SystemExit(3)", other=MIXER.format(name="mine"))
    assert registry("model").find("mine").source.endswith("other.py")


def test_a_plugin_folder_that_is_not_there_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv(PLUGINS_VARIABLE, "/no/such/folder")
    assert registry("model").problems[0].reason == snapshot


def test_entry_points_are_found_and_broken_ones_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_package.py").write_text(MIXER.format(name="ignored") + TASK + MODULE)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    lines = [
        "[linbench.models]",
        "theirs = their_package:Mine",
        "plain = their_package:Plain",
        "gone = their_package:Gone",
    ]
    (info / "entry_points.txt").write_text(
        "\n".join([*lines, "[linbench.tasks]", "their_task = their_package:Asked"])
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = registry("model")
    assert found.find("theirs").source == "package their-package"
    assert found.find("plain").cls.__name__ == "Plain"
    assert registry("task").find("their_task").digest
    assert [problem.name for problem in found.problems] == ["gone"]


def test_paths_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MIXER.format(name="mine") + MODULE)
    Path("one.py").write_text(MODULE)
    find = registry("model").find
    assert find("./mine.py:Mine").name == find("mine.py:Mine").name == "mine.py:Mine"
    assert find("one.py").cls.__name__ == "Plain"
    assert find("linbench.models.deltanet:DeltaNet").cls.__name__ == "DeltaNet"
    assert find("torch.nn:Identity").cls.__name__ == "Identity"
    with pytest.raises(UserError, match=r"unknown class in mine\.py 'Mind'; did you mean 'Mine'"):
        find("mine.py:Mind")
    with pytest.raises(UserError, match="has 2 suitable classes"):
        find("mine.py")
    with pytest.raises(UserError, match=r"there is no file \./other.py"):
        find("./other.py:Mine")
    with pytest.raises(UserError, match="there is no module no_such_module"):
        find("no_such_module:Mine")
    with pytest.raises(UserError, match="is not a model"):
        find("pathlib:Path")
    Path("instance.py").write_text("import torch\nlayer = torch.zeros(1)\n")
    with pytest.raises(UserError, match="is Tensor, not a class"):
        find("instance.py:layer")
    Path("bad.py").write_text("import no_such_package\n")
    with pytest.raises(
        PluginError, match=r"bad\.py line 1: ModuleNotFoundError: No module named 'no_such_package'"
    ):
        find("bad.py:Mine")


UNFINISHED = """
import torch
from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Task

class Bare(Task):
    '''A task.'''
    answers = 1
    def slice_sizes(self): return {}
    def sample(self, index, *, seed, split):
        return Batch(index[:, None], index[:, None] * 0, index[:, None], {})
    def solve(self, batch): return batch.targets
    def explain(self, batch): return []
    def chance(self): return 0.5

class Other(Bare):
    Settings = dict

class Sketched(Task):
    class Settings(Settings):
        seq_len: int = 4

class Odd(Bare):
    class Settings(Settings):
        seq_len: int = 4
    presets = {"quick": 3}
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Bare",
            (
                "task Bare has no Settings; it needs a class Settings derived from"
                " linbench.common.settings.Settings"
            ),
        ),
        (
            "Other",
            (
                "task Other has <class 'dict'> for its Settings; it needs a class Settings derived from"
                " linbench.common.settings.Settings"
            ),
        ),
        (
            "Sketched",
            (
                "task Sketched does not define answers, chance, explain, sample, slice_sizes, solve, as every"
                " Task must"
            ),
        ),
        (
            "Odd",
            (
                "task Odd has presets = {'quick': 3}; it must be a dictionary of linbench.tasks.base.Preset"
                " by name"
            ),
        ),
    ],
)
def test_a_task_that_is_not_finished_is_refused_in_one_sentence(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(UNFINISHED)
    with pytest.raises(UserError) as refused:
        registry("task").find(f"{tmp_path}/mine.py:{name}")
    assert str(refused.value) == said


def test_a_task_whose_settings_lack_what_its_base_reads_is_the_users_matter(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(UNFINISHED + "\nclass Short(Odd):\n    presets = {}\n")
    with pytest.raises(
        PluginError,
        match=(
            r"task .*mine\.py:Short cannot be used: AttributeError: 'Settings' object has no attribute"
            r" 'vocab_size'\."
        ),
    ):
        plan(f"{tmp_path}/mine.py:Short", ["lstm"], device="cpu")

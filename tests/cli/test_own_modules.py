"""Modules of one's own, by path and by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MINE = """
import torch
from torch import nn

class RunningMean(nn.Module):
    '''The mean of all that was seen.'''
    def __init__(self, dim, gain=1.0):
        super().__init__()
        self.linear, self.gain = nn.Linear(dim, dim), gain

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1, device=x.device)
        return self.gain * self.linear(x).cumsum(1) / count[:, None]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_users_module_by_path_is_trained_and_shown(linbench: Callable[..., Any], tiny: list[str]) -> None:
    Path("mine.py").write_text(MINE)
    ended = linbench(
        "run",
        "mqar",
        "--model",
        "./mine.py:RunningMean,mine.py:RunningMean+deltanet",
        "--set",
        "model.gain=0.5",
        *tiny,
    )
    assert ended.code == 0
    assert "| undeclared" in ended.out
    assert "mine.py:RunningMean+deltanet" in ended.out
    assert (
        linbench("run", "mqar", "--model", "mine.py:RunningMean", "--set", "model.gian=1", *tiny).err.count(
            "did you mean 'model.gain'"
        )
        == 1
    )


PLAIN = {
    "bare": (
        """
class Bare(nn.Module):
    def forward(self, x):
        return x
"""
    ),
    "default": (
        """
class Default(nn.Module):
    def __init__(self, dim, act=nn.GELU, heads=8, sizes=(1, 2)):
        super().__init__()
        assert heads == 8
        self.act = act()

    def forward(self, x):
        return self.act(x)
"""
    ),
    "open": (
        """
class Open(nn.Module):
    def __init__(self, hidden_size, **more):
        super().__init__()
        assert more in ({}, {'sizes': [1, 2]}), more

    def forward(self, x):
        return x, None
"""
    ),
}


@pytest.mark.usefixtures("undrawn", "unprobed")
@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_ordinary_constructors_get_the_width_and_what_the_user_says(
    linbench: Callable[..., Any], tiny: list[str], name: str
) -> None:
    Path(f"{name}.py").write_text("from torch import nn\n" + PLAIN[name])
    words = ["run", "mqar", "--workers", "0", *tiny]
    assert linbench(*words, "--model", f"{name}.py").code == 0
    if name != "bare":
        assert linbench(*words, "--model", f"./{name}.py", "--set", "model.sizes=[1,2]").code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unprobed")
def test_settings_of_one_mixer_reach_it_however_its_path_is_written(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    Path("mine.py").write_text(MINE)
    for spelling in ("model.mine.py:RunningMean.gain=0.5", "model../mine.py:RunningMean.gain=0.5"):
        words = ["run", "mqar", "--model", "./mine.py:RunningMean", "--set", spelling, "--workers", "0"]
        (result,) = json.loads(linbench(*words, "--json", *tiny).out)
        assert result["cell"]["model"]["layers"][0]["settings"] == {"gain": 0.5}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_module_and_a_neighbour_in_the_working_folder_are_found(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    Path("a_neighbour.py").write_text(MINE)
    Path("uses_it.py").write_text(
        "print('loud')\nfrom a_neighbour import RunningMean\nclass Mine(RunningMean):\n    pass\n"
    )
    ended = linbench(
        "run", "mqar", "--model", "uses_it:Mine", "--model", "./uses_it.py:Mine", "--json", *tiny
    )
    assert ended.code == 0
    assert len(json.loads(ended.out)) == 2


TASK = """
from linbench.tasks.mqar import MQAR
from linbench.tasks.base import Preset

class Full(MQAR):
    '''Asked by me.'''
    name = "full"
    presets = {
        each: Preset(each, {"seq_len": length, "kv_pairs": 2, "vocab_size": 16})
        for each, length in (("one", 16), ("two", 32))
    }
"""
PLACES = ["./tk.py:Full", "deep/er/tk.py:Full", "tk.py", "tk:Full", "'a, b+[c]/tk.py:Full'"]


@pytest.fixture
def tasks(tmp_path: Path) -> None:
    """The same task in several places."""
    for place in ("tk.py", "deep/er/tk.py", "a, b+[c]/tk.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(TASK)


@pytest.mark.slow
@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("preset", ["", "/two"])
@pytest.mark.parametrize("place", PLACES)
def test_a_task_by_path_is_found_by_every_verb(
    linbench: Callable[..., Any], tiny: list[str], place: str, preset: str
) -> None:
    name, length = place.strip("'").removeprefix("./"), 32 if preset else 16
    Path("mine.yaml").write_text(
        json.dumps({"about": "mine", "tasks": [place + preset, "mqar"], "models": ["deltanet"]})
    )
    planned = linbench(
        "sweep", "mine.yaml", "--only", place + preset, "--dry-run", "--json", "--device", "cpu"
    )
    assert (planned.code, len(json.loads(planned.out)["cells"]), planned.err) == (0, 1, "")
    drawn = linbench(
        "bench",
        "data",
        "--tasks",
        f"mqar/quick,{place}{preset}",
        "--repeat",
        "1",
        "--device",
        "cpu",
        "--json",
    )
    assert drawn.code == 0
    assert [result["label"] for result in json.loads(drawn.out)[1:]] == [
        f"{name}{end}" for end in ([preset] if preset else ["/one", "/two"])
    ]
    shown = linbench("show", "task", place + preset)
    assert shown.code == 0
    assert f"{length} tokens" in shown.out


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "tasks")
def test_a_task_with_its_preset_is_run(linbench: Callable[..., Any], tiny: list[str]) -> None:
    given = [word for word in tiny if "=" in word and not word.startswith("task.")]
    words = ["--device", "cpu", *(word for setting in given for word in ("--set", setting))]
    ended = linbench("run", "deep/er/tk.py:Full/two", "--model", "deltanet", "--json", *words)
    assert json.loads(ended.out)[0]["cell"]["task"]["settings"]["seq_len"] == 32
    ended = linbench("run", "deep/er/tk.py:Full/two", "--preset", "one", "--model", "deltanet", *words)
    assert ended.code == 2
    assert "'deep/er/tk.py:Full/two' and --preset one" in ended.err


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unprobed")
def test_a_model_in_a_folder_with_signs_in_its_name_is_run(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    Path("a+b, [c=d]").mkdir()
    Path("a+b, [c=d]/mine.py").write_text(MINE)
    place = "a+b, [c=d]/mine.py:RunningMean"
    assert linbench("show", "model", f"'{place}'").code == 0
    words = ["--model", f"'./{place}'[gain=2],2x'{place}'+deltanet", "--set", f"model.'{place}'.gain=0.5"]
    first, second = json.loads(linbench("run", "mqar", *words, "--json", *tiny).out)
    assert first["cell"]["model"]["layers"][0] == {
        **second["cell"]["model"]["layers"][0],
        "settings": {"gain": 2.0},
    }
    assert second["cell"]["model"]["layers"][0]["settings"] == {"gain": 0.5}
    assert second["label"] == f"2x'{place}'+deltanet"


@pytest.mark.usefixtures("undrawn", "unprobed")
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_edited_file_is_run_as_it_is_now_also_in_one_process(
    linbench: Callable[..., Any], tiny: list[str], workers: str
) -> None:
    scores, words = [], ["--workers", workers, "--json", *tiny]
    for gain in ("1.0", "0.0"):
        Path("mine.py").write_text(MINE.replace("gain=1.0", f"gain={gain}"))
        scores.append(json.loads(linbench("run", "mqar", "--model", "./mine.py:RunningMean", *words).out)[0])
    assert scores[0]["id"] != scores[1]["id"]
    assert scores[0]["curve"] != scores[1]["curve"]

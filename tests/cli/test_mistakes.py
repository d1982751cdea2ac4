"""Mistakes of users, each answered with one sentence; `test_wording.py` has many more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion


@pytest.mark.parametrize(
    ("gpus", "device"),
    [
        (0, "cuda"),
        (0, "cuda:1"),
        (0, "gpu"),
        (2, "cuda:2"),
        (2, "gpu"),
        (0, "mps"),
        (0, "tpu:0"),
        (0, "cpi"),
    ],
)
def test_a_device_that_is_not_there_is_no_misspelling(
    linbench: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
    gpus: int,
    device: str,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.version.cuda", "12.6")
    ended = linbench("run", "mqar", "--model", "deltanet", "--device", device)
    assert ended.code == 2
    assert ended.err == snapshot


def test_what_is_not_near_is_not_suggested(linbench: Callable[..., Any]) -> None:
    ended = linbench("run", "mqar", "--model", "deltanet", "--set", "model.dim=8")
    assert "unknown setting 'model.dim'. Allowed:" in ended.err
    ended = linbench("run", "mqar", "--model", "deltanet", "--set", "model.d_modle=8")
    assert "unknown setting 'model.d_modle'; " in ended.err
    assert "did you mean 'model.d_model'? " in ended.err
    assert "did you mean" not in linbench("run", "mqar", "--model", "deltanet", "--set", "modle.dim=8").err


def test_a_misspelt_class_is_near_one_that_the_file_imports(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    Path("base.py").write_text("from torch import nn\nclass Layer(nn.Module):\n    pass\n")
    Path("again.py").write_text("from torch.nn import *\nfrom base import Layer\n")
    ended = linbench("run", "mqar", "--model", "./again.py:Layr")
    assert ended.code == 2
    assert ended.err == snapshot


UNDOCUMENTED = """
from torch import nn
from linbench.common.settings import Settings
from linbench.models.base import Mixer
from linbench.tasks.mqar import MQAR
from linbench.tasks.base import Task
class Bare(nn.Module):
    def __init__(self, dim):
        super().__init__()
class Recurrent(nn.GRU):
    def __init__(self, dim):
        super().__init__(dim, dim)
class Described(nn.Module):
    '''Mine, described.'''
class Heir(Described):
    pass
class Mixes(Mixer):
    Settings = Settings
    def forward(self, x, state=None, handed=None): ...
    def init_state(self, batch, *, capacity): ...
    def state_floats(self, seq_len): ...
    def recurrence_flops(self, seq_len): ...
"""


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("Bare", "Bare, an nn.Module. It has no docstring."),
        ("Recurrent", "Recurrent, an nn.Module. It has no docstring."),
        ("Described", "Described, an nn.Module. Mine, described."),
        ("Heir", "Heir, an nn.Module. Mine, described."),
        ("Mixes", "It has no docstring."),
    ],
)
def test_a_class_without_a_docstring_has_not_that_of_a_framework(
    linbench: Callable[..., Any], name: str, card: str
) -> None:
    Path("mine.py").write_text(UNDOCUMENTED)
    out = linbench("show", "model", f"./mine.py:{name}").out
    assert out.split("\n\n")[1] == card


CONFIGURED = """
from torch import nn
class Config:
    hidden_size = 8
class Typed(nn.Module):
    def __init__(self, settings: Config, layer_idx: int):
        super().__init__()
class Late(nn.Module):
    def __init__(self, settings: "Config"):
        super().__init__()
class Named(nn.Module):
    def __init__(self, config, layer_idx=None):
        super().__init__()
class Beside(nn.Module):
    def __init__(self, hidden_size, settings: Config):
        super().__init__()
class Untold(nn.Module):
    def __init__(self, its):
        super().__init__()
        self.inner = nn.Linear(its.hidden_size, 1)
class Kept(nn.Module):
    def __init__(self, dim: int, options: dict, config: Config = None):
        super().__init__()
"""


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("Typed", "settings"),
        ("Late", "settings"),
        ("Named", "config"),
        ("Beside", "settings"),
        ("Untold", "its"),
    ],
)
def test_a_constructor_that_takes_an_object_is_told_how_it_can_be_used(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion, name: str, parameter: str
) -> None:
    Path("mine.py").write_text(CONFIGURED)
    ended = linbench("run", "mqar", "--model", f"./mine.py:{name}", "--device", "cpu")
    assert ended.code == 2
    assert f"`{parameter}`" in ended.err
    assert f"class Adapted{name}({name}):" in ended.err
    assert ended.err == snapshot
    assert ended.err.count("\n") == 5


def test_a_small_subclass_can_be_used_and_so_can_whatever_json_has(linbench: Callable[..., Any]) -> None:
    Path("mine.py").write_text(
        CONFIGURED
        + "class Small(Typed):\n    def __init__(self, d_model):\n        super().__init__(Config(), 0)\n"
    )
    assert linbench("check", "./mine.py:Small").err.count("takes an object") == 0
    assert linbench("show", "model", "./mine.py:Kept").code == 0


def test_a_path_that_the_system_refuses_is_one_sentence(linbench: Callable[..., Any]) -> None:
    for words in (
        ["table", "--results"],
        ["claims", "--results"],
        ["sweep", "quick", "--dry-run", "--device", "cpu", "--results"],
    ):
        ended = linbench(*words, "x" * 300)
        assert (ended.code, ended.err.count("\n")) == (6, 1), ended.err
        assert "File name too long" in ended.err


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ("{rates: 1000}", "suite.search.rates = 1000"),
        ("{lowest: 8, rates: 10}", "rates must lie between 1e-20 and 1e6"),
    ],
)
def test_rates_that_no_number_holds_are_refused(
    linbench: Callable[..., Any], tmp_path: Path, search: str, sentence: str
) -> None:
    (tmp_path / "mine.yaml").write_text(f"{{about: x, tasks: [mqar], models: [deltanet], search: {search}}}")
    ended = linbench("sweep", tmp_path / "mine.yaml", "--dry-run")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert sentence in ended.err

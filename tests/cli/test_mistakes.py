"""What a user may get wrong is one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "mqr", "--model", "deltanet"], "unknown task 'mqr'; did you mean 'mqar'?"),
        (["run", "mqar", "--model", "deltnet"], "unknown model 'deltnet'; did you mean 'deltanet'?"),
        (["run", "mqar", "--model", "deltanet", "--preset", "quck"], "did you mean 'quick'?"),
        (
            ["run", "mqar", "--model", "deltanet", "--seeds", "x"],
            "seeds are numbers such as 0,1,2 or 0-4, not 'x'; the largest is 9223372036854775807.",
        ),
        (["run", "mqar", "--model", "deltanet", "--seeds", "4-0"], "not '4-0'"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "²"], "not '²'"),
        (
            ["run", "mqar", "--model", "deltanet", "--seeds", "0-99999999999"],
            "seeds are at most 10000 at once, not '0-99999999999'.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--seeds", "18446744073709551616"],
            "not '18446744073709551616'; the largest is 9223372036854775807.",
        ),
        (["run", "mqar", "--model", "deltanet", "--set", "heads"], "--set takes NAME=VALUE"),
        (
            ["run", "mqar", "--model", "deltanet", "--search", "--set", "protocol.lr=1e-3"],
            "protocol.lr = 1e-3: the learning rate is searched for; give one",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--precision", "bf16", "--set", "protocol.precision=fp32"],
            "both say the precision; give one of the two",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--set", "protocol.clip=inf"],
            "protocol.clip = inf: input should be a finite number",
        ),
        (["run", "mqar", "--model", "00xdeltanet"], "is not a layer pattern"),
        (["run", "mqar", "--model", "3xdeltanet+attention", "--set", "model.layers=2"], "4, 8, ... would do"),
        (["run", "mqar", "--model", "torch.nn:MultiheadAttention"], "model.num_heads must be given"),
        (["run", "mqar", "--model", "torch.nn.functional:pi"], "unknown class in torch.nn.functional 'pi'"),
        (["run", "mqar", "--model", "deltanet", "--set", "task.seq_len=63"], "63 is odd, 64 would do"),
        (["run", "mqar", "--model", ""], "'' names no model; `linbench list models` has them."),
        (["sweep", "quick", "--model", ","], "',' names no model"),
        (["compare", "nope", "--suite", "quick"], "unknown model 'nope'"),
        (["bench", "length", "--models", "", "--device", "cpu"], "'' names no model"),
        (
            ["bench", "length", "--repeat", "0"],
            "--repeat takes a whole number from 1 to 1,073,741,824, not '0'.",
        ),
        (
            ["bench", "length", "--lengths", "", "--device", "cpu"],
            "--lengths takes whole numbers from 1 to 1,073,741,824, such as 64,256, not ''.",
        ),
        (
            ["bench", "length", "--set", "heads=4", "--device", "cpu"],
            "--set heads has no effect on a layer; did you mean model.heads?",
        ),
        (
            ["bench", "length", "--set", "task.x=4", "--device", "cpu"],
            "--set task.x has no effect on a layer; use model.NAME.",
        ),
        (
            ["bench", "ops", "--ops", "", "--device", "cpu"],
            "--ops takes names with commas between, not ''; without it all are taken.",
        ),
        (
            ["bench", "ops", "--shapes", "", "--device", "cpu"],
            "--shapes takes shapes such as B256xT256xH2xD64,B8xT4096xH16xD128, not ''.",
        ),
        (
            ["bench", "data", "--tasks", "mqar,,copying", "--device", "cpu"],
            "--tasks takes names with commas between, not 'mqar,,copying'",
        ),
        (
            ["bench", "train", "--shapes", "B2xT1xD64", "--device", "cpu"],
            "attention at B2xT1xD64 cannot be: task.seq_len = 1: ",
        ),
        (["check", "99999999xdeltanet"], "'99999999xdeltanet' has more than 1,024 layers."),
        (["check", f"{'9' * 5000}xdeltanet"], "has more than 1,024 layers."),
        (
            ["run", "mqar", "--model", "deltanet", "--seeds", "९"],
            "not '९'; the largest is 9223372036854775807.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--stack", "१"],
            "--stack takes a whole number from 1 to 1,073,741,824, not '१'.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--test-lengths", "१x"],
            "such as 1x,2x,4x, up to 4096x, not '१x'.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--set", "protocol.evaluations=1000000000000000000"],
            "should be less than or equal to 10000.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--set", "protocol.batch_size=1000000000"],
            "should be less than or equal to 1048576.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--set", f"task.kv_pairs={'9' * 4000}"],
            "kv_pairs is larger than 9223372036854775807, which no",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--set", "task.seq_len=2097152"],
            "a sequence of mqar has 2,097,152 tokens; it may have 262,144 at most.",
        ),
        (
            ["run", "capacity", "--model", "deltanet", "--set", "task.delay=1000000000000"],
            "task.delay = 1000000000000: it may be 1,073,741,824 at most.",
        ),
        (
            ["run", "mqar", "--model", "deltanet[head_dim=1000000000]"],
            "model.head_dim = 1000000000: it may be 131,072 at most.",
        ),
        (
            ["run", "mqar", "--model", "deltanet", "--set", "model.expand_k=1e18"],
            "model.expand_k = 1e+18: it may be 1,024 at most.",
        ),
        (
            ["sweep", "quick", "--shard", "१/२"],
            "--shard takes I/N, such as 1/4 for the first of four, not '१/२'.",
        ),
        (["sweep", "quick", "--shard", f"1/{'9' * 5000}"], "--shard takes I/N"),
        (["sweep", "quick", "--devices", "९"], "--devices takes all, or a number of GPUs, not '९'."),
        (
            ["sweep", "quick", "--workers", "9999999"],
            "--workers takes a whole number from 0 to 1,024, not '9999999'.",
        ),
        (["sweep", "quick", "--timeout", "inf"], "--timeout takes a number from 1 to 1e+07, not 'inf'."),
        (["sweep", "quick", "--gpus", "nan"], "--gpus takes a number from 0 to 1, not 'nan'."),
        (["bench", "length", "--lengths", "२५६", "--device", "cpu"], "--lengths takes whole numbers from 1"),
        (["bench", "ops", "--shapes", "B१xT१xH१xD१", "--device", "cpu"], "--shapes takes shapes such as"),
        (
            ["untrained", "capacity", "--seed", f"1{'0' * 30}"],
            "--seed takes a whole number from 0 to 9,223,372,036,854,775,807",
        ),
        (["run", "x" * 100_000, "--model", "deltanet"], "unknown task 'xxx"),
        (["show", "model", "deltnet"], "did you mean 'deltanet'?"),
        (["figures", "learning-curve"], "did you mean 'learning-curves'?"),
        (["run", "mqar", "--model", "./no.py:Mine"], "there is no file ./no.py"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(
    linbench: Callable[..., Any], words: list[str], sentence: str
) -> None:
    ended = linbench(*words)
    assert ended.code == 2
    assert sentence in ended.err
    assert len(ended.err) < 4000
    assert ended.err.count("\n") == 1
    assert ended.out == ""
    assert not Path("results").exists()


def test_unknown_options_and_verbs_exit_2(linbench: Callable[..., Any]) -> None:
    assert linbench("run", "mqar", "--model", "deltanet", "--sedes", "1").code == 2
    assert linbench("runn").code == 2


@pytest.mark.parametrize(
    ("gpus", "device", "sentence"),
    [
        (0, "cuda", "--device cuda cannot be had: torch finds no GPU here; cpu or auto would do."),
        (0, "cuda:1", "--device cuda:1 cannot be had: torch finds no GPU here; cpu or auto would do."),
        (0, "gpu", "--device gpu cannot be had: torch finds no GPU here; cpu or auto would do."),
        (2, "cuda:2", "there is no cuda:2 here; torch finds cuda:0, cuda:1."),
        (2, "gpu", "unknown device 'gpu'; did you mean 'cuda'? Allowed: auto, cpu, cuda, cuda:0, cuda:1."),
        (0, "mps", "linbench does not run on mps; auto, cpu would do."),
        (0, "tpu:0", "linbench does not run on tpu:0; auto, cpu would do."),
        (0, "cpi", "unknown device 'cpi'; did you mean 'cpu'? Allowed: auto, cpu."),
    ],
)
def test_a_device_that_is_not_there_is_no_misspelling(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, gpus: int, device: str, sentence: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.version.cuda", "12.6")
    ended = linbench("run", "mqar", "--model", "deltanet", "--device", device)
    assert (ended.code, ended.err) == (2, f"linbench: {sentence}\n")


def test_what_is_not_near_is_not_suggested(linbench: Callable[..., Any]) -> None:
    ended = linbench("run", "mqar", "--model", "deltanet", "--set", "model.dim=8")
    assert ended.err.startswith("linbench: unknown setting 'model.dim'; Allowed: ")
    ended = linbench("run", "mqar", "--model", "deltanet", "--set", "model.d_modle=8")
    assert ended.err.startswith("linbench: unknown setting 'model.d_modle'; did you mean 'model.d_model'? ")
    assert "did you mean" not in linbench("run", "mqar", "--model", "deltanet", "--set", "modle.dim=8").err


def test_a_misspelt_class_is_near_one_that_the_file_imports(linbench: Callable[..., Any]) -> None:
    Path("base.py").write_text("from torch import nn\nclass Layer(nn.Module):\n    pass\n")
    Path("again.py").write_text("from torch.nn import *\nfrom base import Layer\n")
    ended = linbench("run", "mqar", "--model", "./again.py:Layr")
    assert (ended.code, ended.err) == (
        2,
        "linbench: unknown class in ./again.py 'Layr'; did you mean 'Layer'? Allowed: Layer.\n",
    )


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
    linbench: Callable[..., Any], name: str, parameter: str
) -> None:
    Path("mine.py").write_text(CONFIGURED)
    ended = linbench("run", "mqar", "--model", f"./mine.py:{name}", "--device", "cpu")
    assert ended.code == 2
    assert ended.err.startswith(
        f"linbench: {name} takes an object as `{parameter}`, and linbench gives a constructor numbers and"
        " text alone: "
    )
    assert f"class Small{name}({name}): def __init__(self, d_model): super().__init__(...)." in ended.err
    assert ended.err.count("\n") == 1


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
        ("{lowest: 8, rates: 10}", "rates lie between 1e-20 and 1e6"),
    ],
)
def test_rates_that_no_number_holds_are_refused(
    linbench: Callable[..., Any], tmp_path: Path, search: str, sentence: str
) -> None:
    (tmp_path / "mine.yaml").write_text(f"{{about: x, tasks: [mqar], models: [deltanet], search: {search}}}")
    ended = linbench("sweep", tmp_path / "mine.yaml", "--dry-run")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert sentence in ended.err

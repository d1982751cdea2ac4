"""`linbench check`: sound mixers pass every law, and each fault is found by the law that it breaks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.check import check
from linbench.check.laws import LAWS
from linbench.check.subject import BARE, Subject
from linbench.plan import plan
from linbench.registry import SHIPPED, registry
from linbench.tasks.mqar import MQAR

FRAME = """
import torch
from torch import nn
from linbench.models.base import Mixer, Out, StateSize
from linbench.models.deltanet import DeltaNet


class Leaks(DeltaNet):
    name = "leaks"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        return Out(y / y.norm(dim=1, keepdim=True), state, handed)


class Forgets(DeltaNet):
    name = "forgets"
    def forward(self, x, state=None, handed=None):
        state = state and state._replace(conv=torch.zeros_like(state.conv))
        return super().forward(x, state, handed)


class Drifts(DeltaNet):
    name = "drifts"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        time = torch.arange(x.shape[1], dtype=x.dtype)
        return Out(y * 1.01 ** time[:, None], state, handed)


class Touches(DeltaNet):
    name = "touches"
    def forward(self, x, state=None, handed=None):
        return super().forward(x - 0.1 * x.mean(dim=0, keepdim=True), state, handed)


class Understates(DeltaNet):
    name = "understates"
    def state_floats(self, seq_len):
        return StateSize(recurrent=super().state_floats(seq_len).recurrent)


class Overflows(DeltaNet):
    name = "overflows"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        return Out(y * x.mean(dim=-1, keepdim=True).exp(), state, handed)


class Rolls(DeltaNet):
    name = "rolls"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        return Out(y + 0.01 * torch.rand(()).to(y.dtype), state, handed)


class Detaches(DeltaNet):
    name = "detaches"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        return Out(y * (1 + x.detach().mean(dim=-1, keepdim=True)), state, handed)


class Raises(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        raise ValueError("no such luck")


class Plain(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x).cumsum(dim=1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
"""

CAUGHT = {
    "Leaks": "causality", "Forgets": "streaming", "Drifts": "ten times as long", "Touches": "batch neighbours", "Understates": "state size",
    "Overflows": "extreme inputs", "Rolls": "determinism", "Detaches": "gradients",
}  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], str]:
    path = tmp_path / "mine.py"
    path.write_text(FRAME)
    return lambda cls: f"{path}:{cls}"


def verdicts(model: str, form: str = "native", **settings: Any) -> dict[str, str]:
    (cell,) = plan("mqar", [model], preset=BARE, form=form, device="cpu", settings={"model.d_model": 32, **settings})
    return {finding.law: finding.verdict for finding in check(Subject(cell))}


@pytest.mark.parametrize("form", ["native", "controlled"])
@pytest.mark.parametrize("name", [name if name == "gated_deltanet" else pytest.param(name, marks=pytest.mark.slow) for name in sorted(
    entry.name for entry in registry("model").entries.values() if entry.source == SHIPPED
)])  # fmt: skip
def test_what_is_shipped_keeps_every_law(name: str, form: str) -> None:
    if form == "controlled" and registry("model").find(name).cls.controlled is None:
        pytest.skip("it has no controlled form")
    found = verdicts(name, form)
    assert list(found) == list(LAWS)
    assert {law: verdict for law, verdict in found.items() if verdict == "WRONG"} == {}
    assert {law for law, verdict in found.items() if verdict == "not declared"} <= {"chunkwise form"}


def test_the_preset_of_a_check_sets_nothing_of_a_model() -> None:
    assert not MQAR.presets[BARE].model


@pytest.mark.parametrize(("cls", "law"), CAUGHT.items())
def test_each_fault_is_found_by_its_law(mine: Callable[[str], str], cls: str, law: str) -> None:
    assert verdicts(mine(cls))[law] == "WRONG"


def test_what_a_module_does_not_declare_is_no_fault(mine: Callable[[str], str]) -> None:
    found = verdicts(mine("Plain"))
    assert {law for law, verdict in found.items() if verdict == "not declared"} == {"streaming", "chunkwise form", "state size"}
    assert "WRONG" not in found.values()


def test_the_command_says_which_laws_are_broken_and_ends_with_1(linbench: Callable[..., Any], mine: Callable[[str], str]) -> None:
    ended = linbench("check", mine("Touches"))
    assert ended.code == 1
    assert "batch neighbours" in ended.out
    assert "batch neighbours is broken. It asks: A row of a batch does not depend on the others" in ended.err
    ended = linbench("check", "deltanet[neg_eigval=true]", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["ok"]


def test_an_exception_is_shown_as_theirs_with_its_line(linbench: Callable[..., Any], mine: Callable[[str], str]) -> None:
    ended = linbench("check", mine("Raises"), "--json")
    assert ended.code == 1
    line = FRAME.splitlines().index('        raise ValueError("no such luck")') + 1
    assert json.loads(ended.out)["laws"][0]["found"] == f"mine.py line {line}: ValueError: no such luck"


def test_names_that_cannot_be_checked_are_refused(linbench: Callable[..., Any]) -> None:
    assert linbench("check", "deltanett").code == 2
    ended = linbench("check", "deltanet+attention")
    assert ended.code == 2
    assert "check them one by one" in ended.err


@pytest.mark.slow
def test_learning_is_a_law_when_asked_for(linbench: Callable[..., Any], mine: Callable[[str], str]) -> None:
    ended = linbench("check", mine("Plain"), "--learn", "--json", "--set", "protocol.tokens=40960")
    assert ended.code == 1
    assert json.loads(ended.out)["laws"][-1]["law"] == "learning"

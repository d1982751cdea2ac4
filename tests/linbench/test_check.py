"""`linbench check`: sound mixers pass every law, and each fault is found by the law that it breaks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.check import Finding, check
from linbench.check.laws import LAWS
from linbench.check.subject import BARE, LARGEST, Subject
from linbench.plan import plan
from linbench.registry import SHIPPED, registry
from linbench.tasks.mqar import MQAR

FRAME = """
import torch
from torch import nn
from linbench.kernels.operators import chosen
from linbench.models.base import Mixer, Out, StateSize
from linbench.models.deltanet import DeltaNet
from linbench.models.rwkv7 import RWKV7


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


class LeaksLate(DeltaNet):
    name = "leaks late"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        early, late = y[:, :128], y[:, 128:]
        return Out(torch.cat([early + late.mean(dim=1, keepdim=True), late], dim=1) if late.shape[1] else y, state, handed)


class LeaksBehind(DeltaNet):
    name = "leaks behind"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        return Out(y + self.layer.index * y.mean(dim=1, keepdim=True), state, handed)


class HandsOnTheFuture(RWKV7):
    name = "hands on the future"
    def forward(self, x, state=None, handed=None):
        y, state, handed = super().forward(x, state, handed)
        return Out(y, state, handed._replace(v=handed.v.flip(1)))


class ForgetsBehind(DeltaNet):
    name = "forgets behind"
    def forward(self, x, state=None, handed=None):
        if state and self.layer.index:
            state = state._replace(memory=torch.zeros_like(state.memory))
        return super().forward(x, state, handed)


class FormsDiffer(DeltaNet):
    name = "forms differ"
    def recur(self, x, q, k, v, memory):
        o, memory = super().recur(x, q, k, v, memory)
        fast = chosen("auto", ("reference", "fast"), q, otherwise="fast") == "fast"
        return (1 + self.layer.index * fast) * o, memory


class Decodes(DeltaNet):
    name = "decodes"
    def decode(self, x, state, handed=None):
        y, state, handed = super().decode(x, state, handed)
        return Out(2 * y, state, handed)


class Prefills(DeltaNet):
    name = "prefills"
    def prefill(self, x, *, capacity, handed=None):
        y, _, handed = self(x, None, handed)
        return Out(y, self.init_state(len(x), capacity=capacity), handed)


class Writes(DeltaNet):
    name = "writes"
    def forward(self, x, state=None, handed=None):
        out = super().forward(x, state, handed)
        if state is not None:
            state.memory.copy_(out.state.memory)
        return out


class Misplaces(DeltaNet):
    name = "misplaces"
    def __init__(self, settings, layer):
        super().__init__(settings, layer)
        if layer.index:
            raise ValueError("only the first, please")


class Normed(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(self.norm(x.flatten(0, 1)).view_as(x))


class Centred(nn.Module):
    "By a mean of earlier batches, and with dropout: sound, though no two calls in training give the same."
    def __init__(self, d_model):
        super().__init__()
        self.linear, self.dropout = nn.Linear(d_model, d_model), nn.Dropout(0.2)
        self.register_buffer("mean", torch.zeros(d_model))

    def forward(self, x):
        y = self.dropout(self.linear(x - self.mean))
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(dim=(0, 1))
        return y


class Skips(nn.Module):
    "Nearly always in training, as stochastic depth does."
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x) * (torch.rand(()) < (0.01 if self.training else 1)).to(x.dtype)


class Unbuildable(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        raise ValueError("not today")

    def forward(self, x):
        return x


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
    "Overflows": "extreme inputs", "Rolls": "determinism", "Detaches": "gradients", "LeaksLate": "causality", "LeaksBehind": "causality",
    "HandsOnTheFuture": "causality", "ForgetsBehind": "streaming", "FormsDiffer": "chunkwise form", "Decodes": "streaming", "Prefills": "streaming",
    "Writes": "streaming", "Misplaces": "construction",
}  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], str]:
    path = tmp_path / "mine.py"
    path.write_text(FRAME)
    return lambda cls: f"{path}:{cls}"


def findings(model: str, form: str = "native", **settings: Any) -> list[Finding]:
    (cell,) = plan("mqar", [model], preset=BARE, form=form, device="cpu", settings={"model.d_model": 32, **settings})
    return check(Subject(cell))


def verdicts(model: str, form: str = "native", **settings: Any) -> dict[str, str]:
    return {finding.law: finding.verdict for finding in findings(model, form, **settings)}


@pytest.mark.parametrize("form", ["native", pytest.param("controlled", marks=pytest.mark.slow)])
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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, mine: Callable[[str], str]) -> Callable[[str, str], Finding]:
    """What one law finds of a class of these; the others are not asked."""

    def ask(cls: str, law: str) -> Finding:
        monkeypatch.setattr("linbench.check.LAWS", {law: LAWS[law]})
        (finding,) = findings(mine(cls))
        return finding

    return ask


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "law"), CAUGHT.items())
def test_each_fault_is_found_by_its_law(asked: Callable[[str, str], Finding], cls: str, law: str) -> None:
    assert asked(cls, law).verdict == "WRONG"


@pytest.mark.parametrize(("cls", "law", "where"), [
    ("LeaksLate", "causality", "before 200 of 300"), ("LeaksBehind", "causality", "in the second layer"), ("ForgetsBehind", "streaming", "in the second layer"),
    ("FormsDiffer", "chunkwise form", "in the second layer"), ("Forgets", "streaming", "token by token"), ("Decodes", "streaming", "by prefill and decode"),
    ("Writes", "streaming", "forward writes into the state"), ("Leaks", "causality", "before 1 of 70"),
])  # fmt: skip
def test_a_fault_is_told_with_the_plainest_place_where_it_shows(asked: Callable[[str, str], Finding], cls: str, law: str, where: str) -> None:
    found = asked(cls, law).found
    assert where in found
    assert ("second layer" in found) == ("Behind" in cls or cls == "FormsDiffer")


def test_what_leaks_in_training_alone_is_found_and_nothing_else_is_blamed(mine: Callable[[str], str]) -> None:
    wrong = {finding.law: finding.found for finding in findings(mine("Normed")) if not finding.ok}
    assert set(wrong) == {"causality", "batch neighbours"}
    assert all(found.endswith(", in training") for found in wrong.values())


@pytest.mark.parametrize("cls", ["Centred", "Skips"])
def test_dropout_and_running_statistics_are_no_fault(mine: Callable[[str], str], cls: str) -> None:
    assert "WRONG" not in verdicts(mine(cls)).values()


def test_a_constructor_that_raises_is_said_once(linbench: Callable[..., Any], mine: Callable[[str], str]) -> None:
    ended = linbench("check", mine("Unbuildable"), "--learn", "--json")
    assert ended.code == 1
    (found,) = json.loads(ended.out)["laws"]
    line = FRAME.splitlines().index('        raise ValueError("not today")') + 1
    assert (found["law"], found["found"]) == ("construction", f"mine.py line {line}: ValueError: not today")


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
    assert json.loads(ended.out)["laws"][1]["found"] == f"mine.py line {line}: ValueError: no such luck"


def test_names_that_cannot_be_checked_are_refused(linbench: Callable[..., Any]) -> None:
    assert linbench("check", "deltanett").code == 2
    ended = linbench("check", "deltanet+attention")
    assert ended.code == 2
    assert "check them one by one" in ended.err
    ended = linbench("check", "gla,deltanet[heads=2,conv=0]")
    assert ended.code == 2
    assert "one model at a time" in ended.err
    assert "gla and deltanet[heads=2,conv=0]" in ended.err


def test_what_no_computer_holds_is_refused_before_it_is_built(linbench: Callable[..., Any]) -> None:
    ended = linbench("check", "rwkv6", "--set", "model.head_dim=1000000")
    assert ended.code == 2
    assert f"a check takes {LARGEST:,} at most" in ended.err


@pytest.mark.slow
def test_learning_is_a_law_when_asked_for(linbench: Callable[..., Any], mine: Callable[[str], str]) -> None:
    ended = linbench("check", mine("Plain"), "--learn", "--json", "--set", "protocol.tokens=40960")
    assert ended.code == 1
    assert json.loads(ended.out)["laws"][-1]["law"] == "learning"

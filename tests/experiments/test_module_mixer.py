import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn

from linbench.common.errors import PluginError, UserError
from linbench.common.scalars import NOTHING, TEXT, TRUTH, WHOLE
from linbench.engine.measure import training_context
from linbench.engine.optimizer import decaying
from linbench.experiments.cell import Cell
from linbench.experiments.module_mixer import OUTER, wrap
from linbench.experiments.registry import registry
from linbench.models.base import LayerInfo, Mixer, StateSize
from linbench.models.gru import GRU
from tests.helpers.cells import plan

MINE = """
from torch import nn
class Mine(nn.Module):
    def __init__(self, dim, floor=float('-inf'), **more):
        super().__init__()
    def forward(self, x):
        return x
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    return "./mine.py:Mine"


def one(model: str, **given: object) -> Cell:
    return plan(
        "mqar", [model], settings={f"model.{name}": value for name, value in given.items()}, device="cpu"
    )[0]


@pytest.mark.parametrize("name", ["floor", "other"])
@pytest.mark.parametrize("value", [".inf", "-inf", "nan", float("inf"), "1e999"])
def test_a_number_that_is_not_finite_is_refused_in_one_sentence(
    mine: str, name: str, value: object, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        one(mine, **{name: value})
    assert str(refused.value) == snapshot


@pytest.mark.parametrize("value", ["[1, NaN]", '{"a": [Infinity]}'])
def test_nor_may_one_stand_within(mine: str, value: object) -> None:
    with pytest.raises(UserError, match="input should be a finite number"):
        one(mine, other=value)


READ = {
    "null": None,
    "0": 0,
    "1e30": 1e30,
    "1.0e+30": 1.0e30,
    "1e-5": 1e-5,
    '[1, {"a": 2.5}]': [1, {"a": 2.5}],
    "true": True,
    "no": "no",
    "on": "on",
    "1:30": "1:30",
    "2024-01-01": "2024-01-01",
    "True": "True",
    "~": "~",
    "relu": "relu",
    "'1'": "1",
    '"no"': "no",
}


def test_settings_of_unknown_types_are_read_as_json_and_each_is_a_cell_of_its_own(mine: str) -> None:
    cells = [one(mine, other=text) for text in READ]
    assert [getattr(cell.model.layers[0].settings, "other") for cell in cells] == list(READ.values())  # noqa: B009 - one that is not declared
    assert len({cell.id for cell in [*cells, one(mine)]}) == len({repr(value) for value in READ.values()}) + 1


TYPED = """
from __future__ import annotations
from typing import TYPE_CHECKING, List, Literal, Optional, Tuple, Union
from enum import Enum
from torch import nn
if TYPE_CHECKING:
    from nowhere import Nothing
class Kind(Enum):
    first = 1
    second = 2
class Mine(nn.Module):
    def __init__(
        self, dim: int, whole: int = 8, real: float = 1, truth: bool = False, text: str = "relu",
        maybe: Optional[str] = None, either: int | str = 1, choice: Literal["a", 1, True] = "a",
        many: List[int] = (), pair: Tuple[int, float] = (1, 2.0), wrong: int = 1e-5, none: str = None,
        unknown: Nothing = None, bare_whole=8, bare_real=1.0, bare_truth=True, bare_text="relu",
        bare_many=(1, 2), bare_none=None, kind: Kind = Kind.first,
    ):
        super().__init__()
    def forward(self, x):
        return x
"""
TAKEN = {
    "whole": {"16": 16, "+5": 5},
    "real": {"1e-5": 1e-5, "2": 2.0, ".5": 0.5},
    "truth": {"true": True, "false": False, "False": False},
    "text": {
        "no": "no",
        "1:30": "1:30",
        "010": "010",
        "1e-5": "1e-5",
        "null": "null",
        "'a, b'": "a, b",
        "nan": "nan",
        "[1": "[1",
    },
    "maybe": {"null": None, "no": "no", "'null'": "null"},
    "either": {"8": 8, "8.5": "8.5", "no": "no"},
    "choice": {"1": 1, "true": True, "a": "a"},
    "many": {"[1, 2]": [1, 2], "1,2": [1, 2], "[]": [], "3": [3]},
    "pair": {"(2, 3)": (2, 3.0)},
    "wrong": {"1e-3": 1e-3, "2": 2},
    "none": {"null": None, "no": "no"},
    "unknown": {"no": "no", "8": 8},
    "bare_whole": {"8": 8, "0.5": 0.5, "null": None},
    "bare_real": {"2": 2.0},
    "bare_truth": {"false": False, "null": None},
    "bare_text": {"8": "8", "no": "no", "null": None},
    "bare_many": {"[4,8]": (4, 8), "4,8,16": (4, 8, 16)},
    "bare_none": {"1e-5": 1e-5, "no": "no"},
}


@pytest.mark.parametrize("how", ["set", "beside"])
@pytest.mark.parametrize("name", TAKEN)
def test_text_is_read_by_the_type_that_the_constructor_takes(mine: str, name: str, how: str) -> None:
    Path("mine.py").write_text(TYPED)
    for text, value in TAKEN[name].items():
        beside = text if not {*text} & set(",[") or (text[0] in "'[" and text != "[1") else f"'{text}'"
        cell = one(mine, **{name: text}) if how == "set" else one(f"{mine}[{name}={beside}]")
        found = getattr(pickle.loads(pickle.dumps(cell)).model.layers[0].settings, name)
        assert (found, type(found)) == (value, type(value)), text


REFUSED = {
    ("whole", "010"): "a whole number",
    ("whole", "1e3"): "a whole number",
    ("whole", 8.0): "a whole number",
    ("whole", "٣"): "a whole number",
    ("whole", True): "a whole number",
    ("real", "no"): "a number",
    ("real", "1_0"): "a number",
    ("truth", "no"): "true or false",
    ("truth", "1"): "true or false",
    ("truth", 0): "true or false",
    ("text", False): "text; put it in quotes",
    ("choice", "b"): "a or 1 or true",
    ("many", "1,x"): "a list, each element a whole number",
    ("maybe", 1): "null or text",
    ("pair", "1"): "2 comma-separated values, a whole number and a number",
    ("bare_whole", "x"): "null or a whole number or a number",
    ("bare_none", "010"): "text in quotes such as '010'",
    ("bare_none", "1_000"): "'1_000'",
    ("bare_none", "0x10"): "'0x10'",
    ("bare_none", "[1"): "not JSON; put text in quotes, such as '[1'.",
    ("bare_none", "{a: 1}"): "not JSON; put text in quotes, such as '{a: 1}'.",
    ("bare_none", "[" * 100_000): "begins like JSON",
    ("whole", "9" * 5000): "a whole number",
}


def test_members_of_an_enumeration_are_read_by_name(mine: str) -> None:
    Path("mine.py").write_text(TYPED)
    cells = [one(mine, kind="second"), one(f"{mine}[kind=first]")]
    assert [pickle.loads(pickle.dumps(cell)).model.layers[0].settings.kind.name for cell in cells] == [
        "second",
        "first",
    ]
    assert len({cell.id for cell in [*cells, one(mine)]}) == 3
    with pytest.raises(UserError, match=r"^model\.kind = secnd: .*first or second; did you mean 'second'\.$"):
        one(mine, kind="secnd")


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_not_of_that_type_is_refused_in_one_sentence(mine: str, name: str, value: object) -> None:
    Path("mine.py").write_text(TYPED)
    with pytest.raises(UserError) as refused:
        one(mine, **{name: value})
    assert str(refused.value).startswith(f"model.{name} = {value}"[:100])
    assert REFUSED[name, value] in str(refused.value)


@pytest.mark.parametrize("name", ["floor", "other"])
def test_quoted_text_is_text_in_another_process_too(mine: str, name: str) -> None:
    Path("mine.py").write_text(MINE.replace("float('-inf')", "None"))
    cell = one(mine, **{name: "'1'"})
    again = pickle.loads(pickle.dumps(cell))
    assert getattr(again.model.layers[0].settings, name) == "1"
    assert again.id == cell.id != one(mine, **{name: "1"}).id


def test_the_module_itself_is_no_setting_whatever_it_is_called(mine: str) -> None:
    Path("mine.py").write_text(MINE.replace("self, ", "s, "))
    assert one(mine).model.layers[0].settings.model_dump().keys() - OUTER == {"floor"}


MARKED = """
import torch
from torch import nn
class Mine(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.map, self.rates = nn.Linear(dim, dim), nn.Parameter(torch.ones(dim, 4))
        self.rates._no_weight_decay = True
    def forward(self, x):
        return self.map(x) * self.rates.sum(dim=-1)
"""


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_a_module_marks_as_not_to_decay_does_not(mine: str, seeds: int) -> None:
    """Mamba's code marks A_log and D so, and some of them are matrices."""
    Path("mine.py").write_text(MARKED)
    with training_context(plan("mqar", [mine], preset="quick", seeds=range(seeds), device="cpu")) as training:
        (flat,), rules = training.stack.flats, training.optimiser.rules
        pairs = zip(flat.names, decaying(flat, rules), strict=True)
        decays = {name: bool(decay) for name, decay in pairs if "mixers" in name}
        assert {name: value for name, value in decays.items() if name.startswith("mixers.0")} == {
            "mixers.0.module.rates": False,
            "mixers.0.module.map.weight": True,
            "mixers.0.module.map.bias": False,
        }


ROOT = Path(__file__).parents[2]
D = 8


def built(module: type[nn.Module], index: int = 0, **settings: Any) -> Any:
    """Return the mixer of a module with these settings, as the layer of that index."""
    wrapped = wrap(module)
    return wrapped(wrapped.Settings.parse(settings, where="model"), LayerInfo(index, 2, D))


class Asks(nn.Module):
    def __init__(
        self, input_size, hidden_size, num_heads, layer_index, batch_first=False, embed_dim=3, scale=1.0
    ):
        super().__init__()
        self.asked = {name: value for name, value in locals().items() if name not in ("self", "__class__")}

    def forward(self, x):
        return x


FILLED = {
    "input_size": D,
    "hidden_size": D,
    "num_heads": 2,
    "layer_index": 1,
    "batch_first": True,
    "embed_dim": 3,
    "scale": 1.0,
}


def test_a_constructor_is_filled_by_the_names_that_it_asks_for() -> None:
    assert built(Asks, index=1).module.asked == FILLED
    given = {"input_size": 4, "num_heads": 4, "batch_first": "false", "embed_dim": 6}
    assert built(Asks, index=1, **given).module.asked == FILLED | given | {"batch_first": False}
    with pytest.raises(UserError, match=r"setting 'model\.hidden_size'"):
        built(Asks, hidden_size=4)


def test_settings_of_a_module_are_described_by_the_values_that_they_take(tmp_path: Path) -> None:
    path = tmp_path / "typed.py"
    path.write_text(
        "from torch import nn\n"
        "class Typed(nn.Module):\n"
        "    def __init__(self, d_model, expansion: int = 2, bias=True, mode: str = 'a'):\n"
        "        super().__init__()\n"
        "    def forward(self, x):\n"
        "        return x\n"
    )
    described = registry("model").find(f"{path}:Typed").cls.Settings.describe()
    words = {name: takes for name, takes, _, _ in described}
    either = f"{NOTHING.words} or {TRUTH.words}"
    assert (words["expansion"], words["bias"], words["mode"]) == (WHOLE.words, either, TEXT.words)


def test_the_heads_of_a_run_reach_a_module_by_its_own_name_for_them(mine: str) -> None:
    Path("mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Module):\n    def __init__(self, dim, nhead=8):\n"
        "        super().__init__()\n    def forward(self, x):\n        return x\n"
    )
    by_ours, by_its_own = one(mine, heads=4), one(mine, nhead=4)
    assert by_ours.model.layers[0].settings.nhead == 4  # type: ignore[attr-defined]
    assert by_ours.id == by_its_own.id != one(mine).id


class HidesItsParameters(nn.GRU):
    def __init__(self, d_model, **more):
        super().__init__(d_model, d_model, **more)


@pytest.mark.parametrize("module", [nn.GRU, nn.LSTM, nn.RNN, HidesItsParameters])
def test_torchs_recurrent_networks_run_as_they_are(module: type[nn.Module]) -> None:
    mixer = built(module)
    assert (mixer.module.input_size, mixer.module.hidden_size, mixer.module.batch_first) == (D, D, True)
    assert mixer(torch.randn(3, 5, D)).y.shape == (3, 5, D)
    assert not built(module, batch_first=False).module.batch_first


def test_what_stands_around_a_module_is_off_by_default_and_of_one_kind() -> None:
    assert {name.partition(".")[0] for name, _ in built(nn.GRU).named_parameters()} == {"module"}
    around = {name: p for name, p in built(nn.GRU, **OUTER).named_parameters() if "module" not in name}
    assert {name: tuple(p.shape) for name, p in around.items()} == {
        "conv.short.weight": (4, D),
        "norm.weight": (D,),
        "map.weight": (D, D),
    }


class Recurrence(nn.GRU):
    controlled = True


def test_a_module_without_a_controlled_form_is_told_how_to_declare_one(mine: str) -> None:
    with pytest.raises(UserError, match=r"--form native, or declare `controlled` in its class"):
        plan("mqar", [mine], form="controlled", device="cpu")


@pytest.mark.parametrize(
    ("declared", "form"),
    [(True, OUTER), ({"bias": False}, {"bias": False} | OUTER), ({}, OUTER), (False, None), (print, None)],
)
def test_a_controlled_form_is_declared_by_true_or_by_settings(declared: Any, form: Any) -> None:
    assert wrap(type("Guest", (nn.GRU,), {"controlled": declared})).controlled == form


def test_the_controlled_form_of_torchs_gru_is_that_of_linbenchs() -> None:
    """Both compute the same with the same weights, so that the same is around both."""
    guest = wrap(Recurrence)
    assert guest.controlled is not None
    assert GRU.controlled is not None
    theirs: Any = guest(guest.Settings.parse(guest.controlled, where="model"), LayerInfo(0, 2, D)).double()
    ours: Any = GRU(GRU.Settings.parse(GRU.controlled, where="model"), LayerInfo(0, 2, D)).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
        theirs.conv.load_state_dict(ours.conv.state_dict())
        theirs.norm.load_state_dict(ours.norm.state_dict())
        theirs.map.load_state_dict(ours.linear.state_dict())
        theirs.module.weight_ih_l0.copy_(ours.project.weight)
        theirs.module.weight_hh_l0.copy_(ours.recurrent.weight)
        theirs.module.bias_ih_l0.copy_(ours.recurrent.bias)
        theirs.module.bias_hh_l0.zero_()
        x = torch.randn(2, 65, D, dtype=torch.float64)
        assert torch.allclose(theirs(x).y, ours(x).y, rtol=0, atol=1e-12)


class Counts(nn.Module):
    """A sum that is carried on, with what it holds declared in one of several ways."""

    declared: Any = D

    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def state_floats(self, seq_len):
        return self.declared(seq_len) if callable(self.declared) else self.declared

    def init_state(self, batch):
        return self.scale.new_zeros(batch, len(self.scale))

    def forward(self, x, state=None):
        y = (self.scale * x).cumsum(dim=1)
        y = y if state is None else y + state[:, None]
        return y, y[:, -1]


def test_a_declared_state_is_carried_with_that_of_the_convolution() -> None:
    mixer: Mixer = built(Counts, outer_conv=4).double()
    assert mixer.streams
    assert mixer.state_floats(9) == StateSize(recurrent=D, convolution=3 * D)
    x = torch.randn(2, 9, D, dtype=torch.float64)
    out = mixer.prefill(x[:, :4], capacity=9)
    y = torch.cat([out.y, mixer.decode(x[:, 4:], out.state).y], dim=1)
    assert torch.allclose(y, mixer(x).y, atol=1e-12)


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        (5, StateSize(recurrent=5)),
        (lambda _, seq_len: 2 * seq_len, StateSize(cache=18)),
        ({"recurrent": 4, "shift": 2}, StateSize(recurrent=4, shift=2)),
    ],
)
def test_the_size_of_a_state_is_a_number_or_numbers_by_kind(declared: Any, size: StateSize) -> None:
    assert built(type("Sized", (Counts,), {"declared": declared})).state_floats(9) == size


@pytest.mark.parametrize("declared", ["8", -1, True, (4, 4), {"memory": 4}])
def test_any_other_size_is_refused_in_one_sentence(declared: Any) -> None:
    with pytest.raises(PluginError, match=r"state_floats must return .* or a dictionary .* by recurrent,"):
        built(type("Sized", (Counts,), {"declared": declared})).state_floats(9)


class WithoutSelf(nn.Module):
    @staticmethod
    def forward(x):
        return x


class AnyArguments(nn.Module):
    def forward(self, *given, **more):
        return given[0]


@pytest.mark.parametrize("module", [WithoutSelf, AnyArguments, nn.Identity])
def test_a_forward_that_can_be_called_with_x_is_not_refused(module: type[nn.Module]) -> None:
    x = torch.ones(1, 2, D)
    assert built(module)(x).y.equal(x)


class Masked(nn.Module):
    def forward(self, hidden, positions, attention_mask=None):
        return hidden


class Keyword(nn.Module):
    def forward(self, x, *, mask):
        return x


class Nothing(nn.Module):
    def forward(self):
        return 0


class Taken(nn.Module):
    def __init__(self, dim, outer_norm):
        super().__init__()


class NoState(Counts):
    def forward(self, x, state=None):
        return x


@pytest.mark.parametrize("module", [nn.MultiheadAttention, Masked, Keyword, Nothing, Taken])
def test_a_module_that_linbench_cannot_call_is_refused_with_what_to_write(
    module: type[nn.Module], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(PluginError) as refused:
        wrap(module)
    assert (str(refused.value), refused.value.adapter) == snapshot
    if refused.value.adapter:
        compile(refused.value.adapter, "adapter", "exec")


def test_a_module_with_init_state_must_return_a_state() -> None:
    with pytest.raises(PluginError, match="its forward must return"):
        built(NoState)(torch.zeros(1, 1, D))


def test_torchs_attention_runs_with_the_pages_adapter_and_sees_no_later_token(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your-layer.md").read_text(encoding="utf-8")
    adapter = next(part for part in page.split("```python\n")[1:] if "MultiheadAttention" in part)
    (tmp_path / "mine.py").write_text(adapter.partition("```")[0], encoding="utf-8")
    cls = registry("model").find(f"{tmp_path}/mine.py:SelfAttention").cls
    mixer = cls(cls.Settings.parse({"num_heads": 4}, where="model"), LayerInfo(0, 2, D)).double()
    assert mixer.module.num_heads == 4
    x = torch.randn(2, 7, D, dtype=torch.float64)
    changed = torch.cat([x[:, :4], -x[:, 4:]], dim=1)
    assert torch.allclose(mixer(x).y[:, :4], mixer(changed).y[:, :4], atol=1e-12)
    assert not torch.allclose(mixer(x).y[:, 4:], mixer(changed).y[:, 4:])

import pickle
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.engine.measure import training_context
from linbench.experiments.cell import Cell
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
    assert one(mine).model.layers[0].settings.model_dump() == {"floor": float("-inf")}


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
        (flat,), (decaying,) = training.stack.flats, training.optimiser.decaying
        decays = {name: bool(x.all()) for name, x in flat.views(decaying[None]).items() if "mixers" in name}
        assert {name: value for name, value in decays.items() if name.startswith("mixers.0")} == {
            "mixers.0.module.rates": False,
            "mixers.0.module.map.weight": True,
            "mixers.0.module.map.bias": False,
        }

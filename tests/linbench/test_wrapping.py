import pickle
from pathlib import Path

import pytest

from linbench.cell import Cell
from linbench.common.errors import UserError
from linbench.measure import started
from linbench.plan import plan

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
    return plan("mqar", [model], settings={f"model.{name}": value for name, value in given.items()}, device="cpu")[0]


@pytest.mark.parametrize("name", ["floor", "other"])
@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", float("inf"), "[1, .nan]", "{a: [.inf]}"])
def test_a_number_that_is_not_finite_is_refused_in_one_sentence(mine: str, name: str, value: object) -> None:
    with pytest.raises(UserError) as refused:
        one(mine, **{name: value})
    assert str(refused.value) == f"model.{name} = {value}: input should be a finite number."


@pytest.mark.parametrize("name", ["floor", "other"])
def test_settings_of_unknown_types_are_read_as_yaml_and_each_is_a_cell_of_its_own(mine: str, name: str) -> None:
    read = {"null": None, "0": 0, "1e30": "1e30", "1.0e+30": 1e30, "[1, {a: 2.5}]": [1, {"a": 2.5}], "true": True}
    cells = [one(mine, **{name: text}) for text in read]
    assert [getattr(cell.model.layers[0].settings, name) for cell in cells] == list(read.values())
    assert len({cell.id for cell in [*cells, one(mine)]}) == len(read) + 1


@pytest.mark.parametrize("name", ["floor", "other"])
def test_quoted_text_is_text_in_another_process_too(mine: str, name: str) -> None:
    cell = one(mine, **{name: "'1'"})
    again = pickle.loads(pickle.dumps(cell))
    assert getattr(again.model.layers[0].settings, name) == "1"
    assert again.id == cell.id != one(mine, **{name: "1"}).id


def test_what_is_no_yaml_is_refused_in_one_sentence(mine: str) -> None:
    with pytest.raises(UserError) as refused:
        one(mine, floor="[1")
    assert str(refused.value) == "model.floor = [1: it is read as YAML, and is none; quote what is text."


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
    """As Mamba's code marks A_log and D, matrices among them."""
    Path("mine.py").write_text(MARKED)
    with started(plan("mqar", [mine], preset="quick", seeds=range(seeds), device="cpu")) as training:
        (flat,), (decaying,) = training.stack.flats, training.optimiser.decaying
        decays = {name: bool(x.all()) for name, x in flat.views(decaying[None]).items() if "mixers" in name}
        assert {name: value for name, value in decays.items() if name.startswith("mixers.0")} == {
            "mixers.0.module.rates": False, "mixers.0.module.map.weight": True, "mixers.0.module.map.bias": False
        }  # fmt: skip

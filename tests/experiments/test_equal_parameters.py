"""Models of undeclared state are compared at equal parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from linbench.engine.compare import plan_comparison
from linbench.experiments.cell import Cell
from linbench.experiments.sizing import TOLERANCE
from linbench.experiments.suite import Suite

LAYERS = """
import torch
from torch import nn
class Plain(nn.Module):
    def __init__(self, dim, wide=1):
        super().__init__()
        self.first, self.second = nn.Linear(dim, wide * dim), nn.Linear(wide * dim, dim)
    def forward(self, x):
        return self.second(self.first(x).cumsum(1))
class Declared(Plain):
    def state_floats(self, seq_len):
        return 64
class Drawn(Plain):
    def __init__(self, dim):
        super().__init__(dim, wide=2)
        self.factor = torch.rand(()).item()
class Fails(Plain):
    def __init__(self, dim):
        raise SystemExit
"""
SETTINGS = {
    "task.seq_len": 16,
    "task.kv_pairs": 2,
    "task.vocab_size": 16,
    "model.d_model": 16,
    "model.layers": 1,
}


def sizes(tmp_path: Path, models: Sequence[str], **more: Any) -> list[int | None]:
    """Return the parameters of each model as a comparison trains it; None of one that cannot be built."""
    (tmp_path / "mine.py").write_text(LAYERS)
    names = [f"{tmp_path}/mine.py:{name}" if name[0].isupper() else name for name in models]
    suite = {"about": "a test", "tasks": ["mqar"], "models": names, "seeds": "0-1", "set": SETTINGS | more}
    plan = plan_comparison(names, Suite.parse(suite, where="suite"), device="cpu")
    (block,) = plan.blocks
    assert [cell.id for cell in plan.cells] == [cell.id for _, cells in block.rows for cell in cells]
    return [_size(cells[0]) for _, cells in block.rows]


def _size(cell: Cell) -> int | None:
    try:
        return cell.model.build(cell.task, seed=0).parameter_count()
    except SystemExit:
        return None


def equal(size: int | None, other: int | None) -> bool:
    assert size is not None
    assert other is not None
    return abs(size - other) <= TOLERANCE * other


@pytest.mark.parametrize("model", ["Plain", "Plain[wide=2]", "Drawn"])
def test_an_undeclared_state_is_made_up_for_by_parameters(tmp_path: Path, model: str) -> None:
    deltanet, guest = sizes(tmp_path, ["deltanet", model])
    assert equal(guest, deltanet)
    first, second = sizes(tmp_path, [model, "deltanet"])
    assert (second, first) == (deltanet, guest)


def test_models_that_declare_their_state_or_have_a_given_width_stay_as_they_are(tmp_path: Path) -> None:
    deltanet, declared, plain = sizes(tmp_path, ["deltanet", "Declared", "Plain"])
    assert not equal(declared, deltanet)
    assert equal(plain, deltanet)
    given = sizes(tmp_path, ["deltanet", "Declared", "Plain"], **{"model.channel_width": 40})
    assert given[1] == given[2]
    assert not equal(given[2], given[0])


def test_without_any_declared_state_all_are_as_large_as_the_first(tmp_path: Path) -> None:
    plain, drawn = sizes(tmp_path, ["Plain", "Drawn"])
    assert plain == sizes(tmp_path, ["Declared", "deltanet"])[0]
    assert equal(drawn, plain)


def test_a_model_that_no_width_makes_equal_and_one_that_cannot_be_built_are_compared_all_the_same(
    tmp_path: Path,
) -> None:
    deltanet, large, fails = sizes(tmp_path, ["deltanet", "Plain[wide=9]", "Fails"])
    assert not equal(large, deltanet)
    assert fails is None

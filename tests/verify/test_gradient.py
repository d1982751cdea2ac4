"""The reach of a gradient: sizes that are known, and panels in which every model has its name."""

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Sheet

from linbench.common.errors import UserError
from linbench.verify.gradient import gradient, shipped
from linbench.verify.gradient_panels import MOST, _end, _parts, drawing, lines
from linbench.verify.update_rules import Trials

HALVING = """
import torch


class Halving(torch.nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        age = torch.arange(x.shape[1], dtype=x.dtype)
        taps = torch.where(age <= 8, 0.5**age, 0.0)
        back = (age[:, None] - age).long()
        return self.scale * torch.where(back >= 0, taps[back.clamp(min=0)], 0.0) @ x
"""

FEW = Trials(count=3, dim=8)


def test_of_a_filter_it_is_its_taps(tmp_path: Path) -> None:
    """Half as much with every token, up to the eighth, and then nothing."""
    file = tmp_path / "mine.py"
    file.write_text(HALVING, encoding="utf-8")
    (line,) = lines(gradient([f"{file}:Halving"], trials=FEW))[1].values()
    start = line[0]
    assert start is not None
    expected = [start + distance * math.log10(0.5) for distance in (0, 1, 2, 4, 8)]
    assert line[:5] == pytest.approx(expected)
    assert line[5:] == [None] * 5


def test_a_layer_that_starts_silent_is_looked_at_all_the_same() -> None:
    rows = gradient(["gla", "gla[silent=true]", "base_conv"], trials=FEW)
    sizes = lines(rows)[1]
    assert sizes["gla"] == sizes["gla[silent=true]"]
    assert None not in sizes["gla"]
    assert [one is None for one in sizes["base_conv"]] == [False] * 3 + [True] * 7


def test_other_seeds_and_forms_give_others() -> None:
    usual = gradient(["deltanet"], trials=FEW)
    assert gradient(["deltanet"], trials=FEW) == usual
    assert gradient(["deltanet"], trials=Trials(count=3, dim=8, seed=1)) != usual
    assert gradient(["deltanet[conv=0]"], form="controlled", trials=FEW) != usual


def test_the_controlled_form_leaves_out_what_has_none() -> None:
    assert set(shipped()) - set(shipped("controlled")) == {"base_conv"}


def test_layers_of_two_kinds_are_refused() -> None:
    with pytest.raises(UserError, match=r"'gla\+rnn' is a pattern of several mixers; name them one by one"):
        gradient(["gla+rnn"], trials=FEW)


def test_every_model_has_its_name_in_one_panel() -> None:
    names = shipped()
    parts = _parts({name: name for name in names})
    assert sorted(name for part in parts.values() for name in part) == sorted(names)
    assert max(map(len, parts.values())) <= MOST
    assert list(_parts({name: name for name in names[:3]})) == [""]
    rows = [
        {"model": name, "mixer": name, "distance": distance, "log_size": -place - distance}
        for place, name in enumerate(names)
        for distance in (0, 1)
    ]
    sheet = Sheet()
    assert drawing(rows, trials="one draw", dim=8, form="native").draw(sheet)
    written = [text.get_text() for axes in sheet.axes for text in axes.texts]
    assert sorted(written) == sorted(names)


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ([0.0, -1.0], (1, -1.0)),
        ([0.0, -1.0, None], (1, -1.0)),
        ([-6.0, -7.0, -9.0], (0.5, -6.5)),
        ([-7.0, -8.0], (0, -6.5)),
        ([None, None], (0, -6.5)),
    ],
)
def test_a_name_stands_where_a_line_ends(line: list[float | None], end: tuple[float, float]) -> None:
    assert _end(line) == end

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Mixer
from linbench.models.lstm import LSTM

B, T, D = 2, 30, 6
Error = Callable[[Tensor, Tensor], float]
Randomise = Callable[[Mixer], Mixer]


def build(**settings: Any) -> LSTM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return LSTM(LSTM.Settings.parse(settings, where="model"), LayerInfo(0, 1, D)).double()


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("expand", [1.0, 0.5])
def test_it_is_torchs(x: Tensor, randomise: Randomise, relative_error: Error, expand: float) -> None:
    mixer = randomise(build(expand=expand))
    theirs = torch.nn.LSTM(D, mixer.width, batch_first=True).double()
    values = {
        "weight_ih": mixer.project.weight,
        "weight_hh": mixer.recurrent.weight,
        "bias_ih": mixer.recurrent.bias,
        "bias_hh": torch.zeros(4 * mixer.width),
    }
    theirs.load_state_dict({f"{name}_l0": value for name, value in values.items()})
    h, (last_h, last_c) = theirs(x)
    y, state, _ = mixer(x)
    assert relative_error(y, h @ mixer.linear.weight.T) < 1e-10
    assert relative_error(state.memory, torch.stack([last_c[0], last_h[0]], dim=1)) < 1e-10


@torch.no_grad()
def test_it_remembers_at_first() -> None:
    """One half of what a cell holds would be left with a bias of 0, 0.73 with 1."""
    mixer = build()
    for weight in (mixer.project.weight, mixer.recurrent.weight):
        weight.zero_()
    state = mixer.init_state(1, capacity=1)
    c = mixer(
        torch.zeros(1, 1, D, dtype=torch.float64),
        state._replace(memory=torch.ones(1, 2, D, dtype=torch.float64)),
    ).state.memory[0, 0]
    assert c.tolist() == pytest.approx([0.7311] * D, abs=1e-4)
    assert mixer.recurrent.bias.sum() == D


def test_a_width_that_is_not_whole_is_refused() -> None:
    with pytest.raises(UserError, match="choose one that makes it whole"):
        build(expand=0.4)

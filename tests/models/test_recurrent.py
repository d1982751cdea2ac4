"""GRU and RNN: torch's, with the same weights."""

import pytest
import torch
from torch import Tensor

from linbench.models.gru import GRU
from linbench.models.rnn import RNN
from tests.helpers.models import B, D, Error, Randomise, build_mixer


@torch.no_grad()
@pytest.mark.parametrize("expand", [1.0, 0.5])
@pytest.mark.parametrize(("cls", "theirs"), [(GRU, torch.nn.GRU), (RNN, torch.nn.RNN)])
def test_it_is_torchs(
    randomise: Randomise,
    relative_error: Error,
    generator: torch.Generator,
    cls: type[GRU | RNN],
    theirs: type[torch.nn.RNNBase],
    expand: float,
) -> None:
    x: Tensor = torch.randn(B, 30, D, dtype=torch.float64, generator=generator)
    mixer = randomise(build_mixer(cls, expand=expand))
    torchs = theirs(D, mixer.width, batch_first=True).double()
    values = {
        "weight_ih": mixer.project.weight,
        "weight_hh": mixer.recurrent.weight,
        "bias_ih": mixer.recurrent.bias,
        "bias_hh": torch.zeros_like(mixer.recurrent.bias),
    }
    torchs.load_state_dict({f"{name}_l0": value for name, value in values.items()})
    h, last = torchs(x)
    y, state, _ = mixer(x)
    assert relative_error(y, h @ mixer.linear.weight.T) < 1e-10
    assert relative_error(state.memory[:, 0], last[0]) < 1e-10

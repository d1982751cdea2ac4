from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Mixer, StateSize
from linbench.models.base_conv import BaseConv
from tests.helpers.cells import plan

B, T, D = 2, 9, 6
Error = Callable[[Tensor, Tensor], float]
Randomise = Callable[[Mixer], Mixer]


def build(width: int = D, **settings: Any) -> BaseConv:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return BaseConv(BaseConv.Settings.parse(settings, where="model"), LayerInfo(0, 1, width))


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@torch.no_grad()
def test_it_is_the_published_formula(
    randomise: Randomise, relative_error: Error, generator: torch.Generator, kernel: int
) -> None:
    mixer = randomise(build(kernel=kernel)).double()
    x = torch.randn(B, T, D, dtype=torch.float64, generator=generator)
    expected = torch.zeros(B, T, D, dtype=torch.float64)
    for t in range(T):
        for channel in range(D):
            seen = sum(
                mixer.conv.weight[kernel - 1 - lag, channel] * x[:, t - lag, channel]
                for lag in range(min(kernel, t + 1))
            )
            gate = x[:, t] @ mixer.linear.weight[channel] + mixer.linear.bias[channel]
            expected[:, t, channel] = (seen + mixer.bias[channel]) * gate + x[:, t, channel]
    assert relative_error(mixer(x).y, expected) < 1e-12


def test_it_starts_as_torch_starts_a_convolution() -> None:
    mixer = build(width=5000, kernel=4)
    for drawn in (mixer.conv.weight, mixer.bias):
        assert 0.499 < drawn.abs().max() <= 0.5
        assert drawn.mean().abs() < 0.02


def test_a_memory_above_it_carries_what_both_carry() -> None:
    (cell,) = plan(
        "mqar",
        ["base_conv+deltanet"],
        device="cpu",
        settings={"model.d_model": 64, "model.heads": 2, "model.deltanet.conv": 0},
    )
    assert cell.model.sketch(cell.task).state_size(1000) == StateSize(
        recurrent=2 * 32 * 32, convolution=2 * 64
    )


def test_it_has_no_controlled_form_and_no_longer_kernel() -> None:
    with pytest.raises(UserError, match="base_conv has no controlled form"):
        plan("mqar", ["base_conv+deltanet"], device="cpu", form="controlled")
    with pytest.raises(UserError, match=r"model\.kernel = 5"):
        build(kernel=5)

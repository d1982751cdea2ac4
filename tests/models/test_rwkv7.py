"""RWKV-7: a delta rule whose every part a token decides."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.models.base import LayerInfo
from linbench.models.deltanet import DeltaNet
from linbench.models.rwkv7 import RWKV7, FirstValue
from tests.helpers.models import HEADS, B, D, Error, Randomise
from tests.helpers.rwkv import K, T, build, controlled, group_norm, heads, mixed


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("given", [False, True])
def test_rwkv7_is_its_equation(
    x: Tensor,
    randomise: Randomise,
    relative_error: Error,
    generator: torch.Generator,
    index: int,
    given: bool,
) -> None:
    mixer = randomise(build(RWKV7, LayerInfo(index, 3, D)))
    read = mixed(mixer, x, "rwkvag")
    r, k, v = (
        heads(read[letter] @ weight.mT)
        for letter, weight in zip("rkv", mixer.project.linear.weight.split(D), strict=True)
    )
    first = torch.randn(B, T, HEADS, K, dtype=torch.float64, generator=generator) if given else v
    cross_layer = FirstValue(first, None) if given else None

    def through(low_rank: Any, z: Tensor, activation: Callable[[Tensor], Tensor] = lambda y: y) -> Tensor:
        return heads(activation(z @ low_rank.down.weight.mT) @ low_rank.up.weight.mT)

    if index:
        v = v + (first - v) * torch.sigmoid(mixer.v0 + through(mixer.v, read["v"]))
    w = torch.exp(-math.exp(-0.5) * torch.sigmoid(mixer.w0 + through(mixer.w, read["w"], torch.tanh)))
    a = torch.sigmoid(mixer.a0 + through(mixer.a, read["a"]))
    gate = through(mixer.readout.gate, read["g"], torch.sigmoid).flatten(-2)
    erased = k * mixer.k_k
    erased = erased / erased.square().sum(dim=-1, keepdim=True).sqrt()
    written = k * (1 + (a - 1) * mixer.k_a)
    state, outputs = x.new_zeros(B, HEADS, K, K), []
    for t in range(T):
        recalled = torch.einsum("bhkv,bhk->bhv", state, erased[:, t])
        state = w[:, t, :, :, None] * state - (erased * a)[:, t, :, :, None] * recalled[:, :, None]
        state = state + written[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, r[:, t]))
    bonus = (r * written * mixer.r_k).sum(dim=-1, keepdim=True) * v
    expected = (
        (group_norm(torch.stack(outputs, dim=1), mixer) + bonus.flatten(-2)) * gate
    ) @ mixer.readout.linear.weight.mT
    out = mixer(x, None, cross_layer)
    assert relative_error(out.y, expected) < 1e-10
    if given:
        assert out.cross_layer is cross_layer
    else:
        assert relative_error(out.cross_layer.v, first) < 1e-12
        assert out.cross_layer.cross_layer is None


@torch.no_grad()
def test_values_of_the_first_layer_reach_the_later_ones_alone(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    first, later = (randomise(build(RWKV7, LayerInfo(index, 2, D))) for index in (0, 1))
    other = randomise(build(RWKV7, LayerInfo(0, 2, D)))
    values, others = first(x).cross_layer, other(x).cross_layer
    assert relative_error(later(x, None, values).y, later(x, None, others).y) > 1e-3
    assert relative_error(first(x, None, values).y, first(x).y) < 1e-12
    alone = build(RWKV7, LayerInfo(1, 2, D), value_residual=False)
    assert alone(x, None, values).cross_layer is values
    assert alone(x).cross_layer is None
    assert {"v0", "v.down.weight", "v.up.weight"} == set(later.state_dict()) - set(alone.state_dict())


@torch.no_grad()
def test_rwkv7_that_keeps_all_and_erases_all_is_deltanet(
    x: Tensor, randomise: Randomise, relative_error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixer, plain = randomise(controlled(RWKV7)), controlled(DeltaNet)
    plain.load_state_dict(
        {name: mixer.state_dict()[name] for name in plain.state_dict() if not name.startswith("beta.")},
        strict=False,
    )
    monkeypatch.setattr(plain.beta, "forward", lambda given: torch.ones(B, T, HEADS, dtype=torch.float64))
    # which counts for more where o is smaller by sqrt(K)
    mixer.readout.norm.eps = plain.readout.norm.eps = 0.0
    x = 1e4 * x  # so that the keys' norm has no eps, either
    expected = plain(x).y
    steps = [(mixer.w0, -math.inf), (mixer.a0, math.inf), (mixer.k_k, 1.0)]
    for parameter, value in steps:
        assert relative_error(mixer(x).y, expected) > 1e-3
        parameter.fill_(value)
    assert relative_error(mixer(x).y, expected) < 1e-9


@torch.no_grad()
def test_rwkv7_starts_as_published() -> None:
    first, last = (build(RWKV7, LayerInfo(index, 3, 64)) for index in (0, 2))
    zero = dict.fromkeys("wa", torch.zeros(1, 1, 64, dtype=torch.float64))
    lin = [n / 63 - 0.5 for n in range(64)]
    bent = [(n % 32 - 15.5) / 15.5 * abs(n % 32 - 15.5) / 15.5 for n in range(64)]
    medians: list[float] = []
    for mixer, power in ((first, 1.0), (last, 2.0)):
        w0 = [-6 + 6 * (n / 63) ** power + 0.5 + 2.5 * bent[n] for n in range(64)]
        assert mixer.w0.flatten().tolist() == pytest.approx(w0, abs=1e-5)
        decay = mixer.log_decay(zero).exp().flatten()
        assert decay.tolist() == pytest.approx(
            [math.exp(-math.exp(-0.5) / (1 + math.exp(-w))) for w in w0], abs=1e-6
        )
        medians.append(decay.median().item())
    assert medians == pytest.approx([0.955, 0.989], abs=2e-3)
    assert first.a0.flatten().tolist() == pytest.approx(
        [-0.19 + 0.3 * bent[n] + 0.4 * lin[n] for n in range(64)], abs=1e-5
    )
    assert first.k_k.flatten().tolist() == pytest.approx([0.71 - 0.1 * each for each in lin], abs=1e-5)
    assert last.v0.flatten().tolist() == pytest.approx([0.73 - 0.4 * each for each in lin], abs=1e-5)
    assert first.k_a.flatten().tolist() == pytest.approx([1.02] * 64)
    assert first.r_k.flatten().tolist() == pytest.approx([-0.04] * 64)
    assert first.readout.norm.weight.unique().item() == pytest.approx((1 / 3) ** 0.7)
    assert last.readout.norm.weight.unique().item() == 1.0
    bounds = [part.abs().max().item() * 64**0.5 for part in first.project.linear.weight.split(64)]
    assert bounds == pytest.approx([0.5, 0.05, 0.5], rel=0.02)
    for name, rank in (("w", 32), ("a", 32), ("v", 32)):
        low_rank = getattr(last, name)
        assert low_rank.down.weight.shape == (rank, 64)
        assert not low_rank.down.weight.any()
        torch.testing.assert_close(
            low_rank.up.weight.mT @ low_rank.up.weight,
            0.01 * torch.eye(rank, dtype=torch.float64),
            rtol=0,
            atol=1e-8,
        )
    assert build(RWKV7, LayerInfo(0, 2, 400)).readout.gate.down.weight.shape == (96, 400)
    around = controlled(RWKV7, heads=HEADS)
    assert around.project.linear.weight[D : 2 * D].abs().max() > 0.9 / D**0.5

"""RWKV-4: a sum that is normalised, and never overflows."""

import math

import pytest
import torch
from torch import Tensor

from linbench.models.base import LayerInfo
from linbench.models.rwkv4 import RWKV4, wkv
from tests.helpers.models import B, D, Error, Randomise
from tests.helpers.rwkv import T, averages, build, controlled, convolved, mixed


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("token_shift", [True, False])
@pytest.mark.parametrize("conv", [0, 4])
@pytest.mark.parametrize("output_norm", ["none", "rms"])
@pytest.mark.parametrize("output_gate", ["sigmoid", "none"])
def test_rwkv4_is_its_equation(
    x: Tensor,
    randomise: Randomise,
    relative_error: Error,
    token_shift: bool,
    conv: int,
    output_norm: str,
    output_gate: str,
) -> None:
    mixer = randomise(
        build(RWKV4, token_shift=token_shift, conv=conv, output_norm=output_norm, output_gate=output_gate)
    )
    gated = output_gate == "sigmoid"
    seen = convolved(x, mixer.conv.short.weight) if conv else x
    read = mixed(mixer, seen, "rkv" if gated else "kv") if token_shift else dict.fromkeys("rkv", seen)
    o = averages(
        read["k"] @ mixer.key.weight.mT,
        read["v"] @ mixer.value.weight.mT,
        mixer.time_decay.exp(),
        mixer.time_first,
    )
    if output_norm == "rms":
        o = o / (o.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * mixer.norm.weight
    if gated:
        o = torch.sigmoid(read["r"] @ mixer.receptance.weight.mT) * o
    assert relative_error(mixer(x).y, o @ mixer.output.weight.mT) < 1e-10


def test_rwkv4_controlled_has_just_what_it_uses() -> None:
    """Filters of four, three maps, decay and bonus, a norm; neither receptance nor mixes of a token shift."""
    mixer = controlled(RWKV4)
    sizes = {name: parameter.numel() for name, parameter in mixer.named_parameters()}
    maps = dict.fromkeys(("key.weight", "value.weight", "output.weight"), D * D)
    assert sizes == {**maps, "conv.short.weight": 4 * D, "time_decay": D, "time_first": D, "norm.weight": D}
    state = mixer.init_state(B, capacity=T)
    assert (state.memory.shape, state.conv.shape, state.shift) == ((B, 3, D), (B, 3, D), None)
    native = build(RWKV4)
    for name in ("time_decay", "time_first", "key.weight", "output.weight"):
        assert torch.equal(mixer.get_parameter(name), native.get_parameter(name)), name


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_keys_of_any_size_neither_overflow_nor_vanish(
    relative_error: Error, generator: torch.Generator, dtype: torch.dtype, limit: float
) -> None:
    """Decays from hardly any to e^3, keys from -80 to 80, so that weights span e^160, against float64."""
    length, width = 300, 24
    draw = [torch.rand(2, length, width, generator=generator, dtype=torch.float64) for _ in range(2)]
    k, v = 80 * (2 * draw[0] - 1), draw[1] - 0.5
    k[:, 100:200] = -80  # and then nothing but what is long gone, or just came
    decay, u = (
        torch.linspace(-9, 3, width, dtype=torch.float64),
        torch.linspace(-3, 3, width, dtype=torch.float64),
    )
    u[::8], u[1::8] = 95, -95
    start = torch.zeros(2, 3, width, dtype=torch.float64)
    start[:, 2] = -1e38
    given = [y.to(dtype).requires_grad_() for y in (k, v, decay, u)]
    exact = [y.to(dtype).double().requires_grad_() for y in (k, v, decay, u)]
    o, memory = wkv(*given, start.to(dtype))
    expected = averages(exact[0], exact[1], exact[2].exp(), exact[3])
    assert memory.isfinite().all()
    assert relative_error(o, expected) < limit
    weights = torch.linspace(-1, 2, o.numel(), dtype=torch.float64).view(o.shape).sin()
    gradients = torch.autograd.grad((o.double() * weights).sum(), given)
    wanted = torch.autograd.grad((expected * weights).sum(), exact)
    for one, other in zip(gradients, wanted, strict=True):
        assert relative_error(one, other) < 5 * limit
    first, middle = wkv(given[0][:, :150], given[1][:, :150], *given[2:], start.to(dtype))
    second, last = wkv(given[0][:, 150:], given[1][:, 150:], *given[2:], middle)
    assert relative_error(torch.cat([first, second], dim=1), expected) < limit
    assert relative_error(last[:, 0] / last[:, 1], memory[:, 0] / memory[:, 1]) < limit


@torch.no_grad()
def test_rwkv4_without_decay_and_keys_is_the_running_mean(x: Tensor) -> None:
    zeros, start = torch.zeros(D, dtype=torch.float64), torch.zeros(B, 3, D, dtype=torch.float64)
    start[:, 2] = -1e38
    o, _ = wkv(torch.zeros_like(x), x, zeros - math.inf, zeros, start)
    torch.testing.assert_close(o, x.cumsum(dim=1) / torch.arange(1, T + 1)[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("time_decay", [15.0, 80.0, 100.0, 1e30, math.inf])
def test_rwkv4_with_a_decay_that_leaves_nothing_sees_two_tokens(
    x: Tensor, relative_error: Error, time_decay: float, dtype: torch.dtype
) -> None:
    """Its own, and that before it, which nothing has faded yet."""
    k, v = (3 * x).to(dtype).requires_grad_(), x.flip(1).to(dtype)
    decay, start = (
        torch.full((D,), time_decay, dtype=dtype).requires_grad_(),
        torch.zeros(B, 3, D, dtype=dtype),
    )
    start[:, 2] = -1e38
    o, memory = wkv(k, v, decay, torch.zeros(D, dtype=dtype), start)
    earlier, own = k[:, :-1].double().exp(), k[:, 1:].double().exp()
    expected = (earlier * v[:, :-1] + own * v[:, 1:]) / (earlier + own)
    assert relative_error(o[:, 1:], expected) < (1e-5 if dtype == torch.float32 else 1e-9)
    assert memory.isfinite().all()
    of_keys, of_decay = torch.autograd.grad(o.square().sum(), (k, decay))
    assert of_keys.isfinite().all()
    assert not of_decay.any()


@torch.no_grad()
def test_rwkv4_starts_as_published() -> None:
    first, last = (build(RWKV4, LayerInfo(index, 3, D)) for index in (0, 2))
    for mixer, power in ((first, 0.7), (last, 2.0)):
        assert mixer.time_decay.tolist() == pytest.approx(
            [-5 + 8 * (n / 15) ** power for n in range(D)], abs=1e-5
        )
        assert mixer.time_first.tolist() == pytest.approx(
            [math.log(0.3) + 0.5 * ((n + 1) % 3 - 1) for n in range(D)], abs=1e-5
        )
    # half of the channels of the first layer fade to half within about a token
    assert 0.5 < math.log(2) / first.time_decay.exp().median() < 1.5
    for name in ("receptance", "key", "output"):
        assert not getattr(first, name).weight.any()
    torch.testing.assert_close(
        first.value.weight @ first.value.weight.mT, torch.eye(D, dtype=torch.float64), rtol=0, atol=1e-6
    )

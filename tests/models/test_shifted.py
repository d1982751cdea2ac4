"""RWKV: each against a loop over its equation, its initial values, and what it must equal where it is something simpler."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.token_shift import TokenShift, depth, own_share
from linbench.models.deltanet import DeltaNet
from linbench.models.linear_attention import LinearAttention
from linbench.models.rwkv4 import RWKV4, wkv
from linbench.models.rwkv5 import RWKV5
from linbench.models.rwkv6 import RWKV6
from linbench.models.rwkv7 import RWKV7, FirstValue
from tests.models.building import HEADS, B, D, Error, Randomise
from tests.models.building import build as build_at

T = 40
K = D // HEADS
LAYER = LayerInfo(1, 3, D)


def build(cls: type[Mixer], layer: LayerInfo = LAYER, **settings: Any) -> Mixer:
    return build_at(cls, layer, **settings)


def controlled(cls: type[Mixer], **settings: Any) -> Mixer:
    return build(cls, **{**cls.controlled, **settings})


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def shifted(x: Tensor) -> Tensor:
    return torch.stack([x[:, t - 1] if t else torch.zeros_like(x[:, 0]) for t in range(x.shape[1])], dim=1)


def mixed(mixer: Mixer, x: Tensor, letters: str) -> dict[str, Tensor]:
    """What the maps read, by the equation of the token shift."""
    mix = dict(zip(mixer.shift.names, mixer.shift.mix, strict=True))
    assert set(mix) == set(letters)
    return {letter: (1 - mix[letter]) * x + mix[letter] * shifted(x) for letter in letters}


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1))


def group_norm(o: Tensor, mixer: Mixer) -> Tensor:
    """As published: a division by 8, then eps 1e-5."""
    norm = mixer.readout.norm
    y = F.group_norm(o.reshape(-1, D) / 8, HEADS, norm.weight.flatten(), norm.bias.flatten(), eps=1e-5)
    return y.view(*o.shape[:2], D)


def eagle(r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """r, k, v, w [B, T, H, K], u [H, K]: token by token, read and then written."""
    state, outputs = r.new_zeros(B, HEADS, K, K), []
    for t in range(r.shape[1]):
        written = k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append(((state + u[..., None] * written) * r[:, t, :, :, None]).sum(dim=2))
        state = w[:, t, :, :, None] * state + written
    return torch.stack(outputs, dim=1)


def averages(k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """RWKV-4: every sum over the past anew, its terms over the largest."""
    outputs = []
    for t in range(k.shape[1]):
        distance = torch.arange(t - 1, -1, -1, dtype=torch.float64)[:, None]
        exponents = torch.cat([k[:, :t] - distance * w, u + k[:, t : t + 1]], dim=1)
        outputs.append((exponents.softmax(dim=1) * v[:, : t + 1]).sum(dim=1))
    return torch.stack(outputs, dim=1)


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """Each channel with its own filter [kernel, D], the last of which is for the token itself, then SiLU."""
    late = F.pad(x.mT, (weight.shape[0] - 1, 0))
    return F.silu(F.conv1d(late, weight.mT[:, None], groups=D)).mT


@torch.no_grad()
@pytest.mark.parametrize("token_shift", [True, False])
@pytest.mark.parametrize("conv", [0, 4])
@pytest.mark.parametrize("output_norm", ["none", "rms"])
@pytest.mark.parametrize("output_gate", ["sigmoid", "none"])
def test_rwkv4_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, token_shift: bool, conv: int, output_norm: str, output_gate: str
) -> None:
    mixer = randomise(build(RWKV4, token_shift=token_shift, conv=conv, output_norm=output_norm, output_gate=output_gate))
    gated = output_gate == "sigmoid"
    seen = convolved(x, mixer.conv.short.weight) if conv else x
    read = mixed(mixer, seen, "rkv" if gated else "kv") if token_shift else dict.fromkeys("rkv", seen)
    o = averages(read["k"] @ mixer.key.weight.mT, read["v"] @ mixer.value.weight.mT, mixer.time_decay.exp(), mixer.time_first)
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
def test_keys_of_any_size_neither_overflow_nor_vanish(relative_error: Error, generator: torch.Generator, dtype: torch.dtype, limit: float) -> None:
    """Decays from hardly any to e^3, keys from -80 to 80, so that weights span e^160, against float64."""
    length, width = 300, 24
    draw = [torch.rand(2, length, width, generator=generator, dtype=torch.float64) for _ in range(2)]
    k, v = 80 * (2 * draw[0] - 1), draw[1] - 0.5
    k[:, 100:200] = -80  # and then nothing but what is long gone, or just came
    decay, u = torch.linspace(-9, 3, width, dtype=torch.float64), torch.linspace(-3, 3, width, dtype=torch.float64)
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


@torch.no_grad()
def test_rwkv4_starts_as_published() -> None:
    first, last = (build(RWKV4, LayerInfo(index, 3, D)) for index in (0, 2))
    for mixer, power in ((first, 0.7), (last, 2.0)):
        assert mixer.time_decay.tolist() == pytest.approx([-5 + 8 * (n / 15) ** power for n in range(D)], abs=1e-5)
        assert mixer.time_first.tolist() == pytest.approx([math.log(0.3) + 0.5 * ((n + 1) % 3 - 1) for n in range(D)], abs=1e-5)
    # half of the channels of the first layer fade to half within about a token
    assert 0.5 < math.log(2) / first.time_decay.exp().median() < 1.5
    for name in ("receptance", "key", "output"):
        assert not getattr(first, name).weight.any()
    torch.testing.assert_close(first.value.weight @ first.value.weight.mT, torch.eye(D, dtype=torch.float64), rtol=0, atol=1e-6)


FORMS = [(cls, form) for cls in (RWKV4, RWKV5, RWKV6, RWKV7) for form in ("native", "controlled")]


@pytest.mark.parametrize(("cls", "form"), FORMS)
def test_replicas_stack(cls: type[Mixer], form: str, x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixers = [randomise(build(cls) if form == "native" else controlled(cls)) for _ in range(3)]
    weights, _ = torch.func.stack_module_state(mixers)
    inputs = torch.stack([x, 2 * x, -x])
    stacked = torch.vmap(lambda own, given: torch.func.functional_call(mixers[0], own, (given,)).y)(weights, inputs)
    alone = torch.stack([mixer(given).y for mixer, given in zip(mixers, inputs, strict=True)])
    assert relative_error(stacked, alone) < 1e-10
    gradients = torch.autograd.grad(stacked.square().sum(), list(weights.values()), allow_unused=True)
    wanted = zip(
        *(torch.autograd.grad(mixer(given).y.square().sum(), list(mixer.parameters()), allow_unused=True) for mixer, given in zip(mixers, inputs, strict=True)),
        strict=True,
    )
    for name, one, other in zip(weights, gradients, wanted, strict=True):
        if other[0] is not None and torch.stack(other).abs().max() > 1e-9:
            assert relative_error(one, torch.stack(other)) < 1e-8, name


@torch.no_grad()
@pytest.mark.parametrize(("cls", "form"), FORMS)
def test_under_autocast_it_is_near(cls: type[Mixer], form: str, x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build(cls) if form == "native" else controlled(cls)).float()
    expected = mixer(x.float()).y
    with torch.autocast("cpu", torch.bfloat16):
        state = mixer.init_state(B, capacity=T)
        given = mixer(x.float(), state)
    assert relative_error(given.y, expected) < 0.05
    assert given.state.memory.dtype == torch.float32


@torch.no_grad()
def test_rwkv5_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build(RWKV5))
    read = mixed(mixer, x, "rkvg")
    r, k, v = (heads(read[letter] @ weight.mT) for letter, weight in zip("rkv", mixer.project.linear.weight.split(D), strict=True))
    w = torch.exp(-torch.exp(mixer.time_decay)).expand(B, T, HEADS, K)
    o = eagle(r, k, v, w, mixer.bonus)
    gate = F.silu(read["g"] @ mixer.readout.gate.weight.mT)
    expected = (group_norm(o, mixer) * gate) @ mixer.readout.linear.weight.mT
    assert relative_error(mixer(x).y, expected) < 1e-10


@torch.no_grad()
def test_rwkv6_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build(RWKV6))
    shift, back, read = mixer.shift, shifted(x) - x, {}
    z = torch.tanh((x + back * shift.first) @ shift.down.weight.mT).view(B, T, 5, 32)
    for i, name in enumerate(shift.names):
        read[name] = x + back * (shift.mix[i] + z[:, :, i] @ shift.up[i].weight.mT)
    assert set(read) == set("wkvrg")
    r, k, v = (heads(read[letter] @ weight.mT) for letter, weight in zip("rkv", mixer.project.linear.weight.split(D), strict=True))
    offset = torch.tanh(read["w"] @ mixer.decay.down.weight.mT) @ mixer.decay.up.weight.mT
    w = torch.exp(-torch.exp(mixer.time_decay + heads(offset)))
    assert 0.05 < w.std() < 0.5
    o = eagle(r, k, v, w, mixer.bonus)
    gate = F.silu(read["g"] @ mixer.readout.gate.weight.mT)
    expected = (group_norm(o, mixer) * gate) @ mixer.readout.linear.weight.mT
    assert relative_error(mixer(x).y, expected) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("given", [False, True])
def test_rwkv7_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error, generator: torch.Generator, index: int, given: bool) -> None:
    mixer = randomise(build(RWKV7, LayerInfo(index, 3, D)))
    read = mixed(mixer, x, "rwkvag")
    r, k, v = (heads(read[letter] @ weight.mT) for letter, weight in zip("rkv", mixer.project.linear.weight.split(D), strict=True))
    first = torch.randn(B, T, HEADS, K, dtype=torch.float64, generator=generator) if given else v
    handed = FirstValue(first, None) if given else None

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
    expected = ((group_norm(torch.stack(outputs, dim=1), mixer) + bonus.flatten(-2)) * gate) @ mixer.readout.linear.weight.mT
    out = mixer(x, None, handed)
    assert relative_error(out.y, expected) < 1e-10
    if given:
        assert out.handed is handed
    else:
        assert relative_error(out.handed.v, first) < 1e-12
        assert out.handed.handed is None


@torch.no_grad()
def test_values_of_the_first_layer_reach_the_later_ones_alone(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    first, later = (randomise(build(RWKV7, LayerInfo(index, 2, D))) for index in (0, 1))
    other = randomise(build(RWKV7, LayerInfo(0, 2, D)))
    values, others = first(x).handed, other(x).handed
    assert relative_error(later(x, None, values).y, later(x, None, others).y) > 1e-3
    assert relative_error(first(x, None, values).y, first(x).y) < 1e-12
    alone = build(RWKV7, LayerInfo(1, 2, D), value_residual=False)
    assert alone(x, None, values).handed is values
    assert alone(x).handed is None
    assert {"v0", "v.down.weight", "v.up.weight"} == set(later.state_dict()) - set(alone.state_dict())


@torch.no_grad()
def test_rwkv7_that_keeps_all_and_erases_all_is_deltanet(x: Tensor, randomise: Randomise, relative_error: Error, monkeypatch: pytest.MonkeyPatch) -> None:
    mixer, plain = randomise(controlled(RWKV7)), controlled(DeltaNet)
    plain.load_state_dict({name: mixer.state_dict()[name] for name in plain.state_dict() if not name.startswith("beta.")}, strict=False)
    monkeypatch.setattr(plain.beta, "forward", lambda given: torch.ones(B, T, HEADS, dtype=torch.float64))
    mixer.readout.norm.eps = plain.readout.norm.eps = 0.0  # which counts for more where o is smaller by sqrt(K)
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
        assert decay.tolist() == pytest.approx([math.exp(-math.exp(-0.5) / (1 + math.exp(-w))) for w in w0], abs=1e-6)
        medians.append(decay.median().item())
    assert medians == pytest.approx([0.955, 0.989], abs=2e-3)
    assert first.a0.flatten().tolist() == pytest.approx([-0.19 + 0.3 * bent[n] + 0.4 * lin[n] for n in range(64)], abs=1e-5)
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
        torch.testing.assert_close(low_rank.up.weight.mT @ low_rank.up.weight, 0.01 * torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-8)
    assert build(RWKV7, LayerInfo(0, 2, 400)).readout.gate.down.weight.shape == (96, 400)
    around = controlled(RWKV7, heads=HEADS)
    assert around.project.linear.weight[D : 2 * D].abs().max() > 0.9 / D**0.5


@torch.no_grad()
def test_rwkv6_whose_tokens_say_nothing_is_rwkv5(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    six, five = randomise(build(RWKV6)), build(RWKV5)
    five.load_state_dict({name: six.state_dict()[name] for name in five.state_dict() if name != "shift.mix"}, strict=False)
    five.shift.mix.copy_(six.shift.mix[[six.shift.names.index(name) for name in five.shift.names]])
    expected = five(x).y
    assert relative_error(six(x).y, expected) > 1e-3
    six.decay.down.weight.zero_()
    assert relative_error(six(x).y, expected) > 1e-3
    six.shift.down.weight.zero_()
    assert relative_error(six(x).y, expected) < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("cls", [RWKV5, RWKV6])
def test_without_decay_and_with_all_of_its_own_write_it_is_linear_attention(cls: type[Mixer], x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer, plain = randomise(controlled(cls)), controlled(LinearAttention, feature_map="identity", normalise=False)
    plain.load_state_dict({name: mixer.state_dict()[name] for name in plain.state_dict()})
    # eps counts for more where o is smaller by sqrt(K)
    mixer.readout.norm.eps = plain.readout.norm.eps = 0.0
    expected = plain(x).y
    assert relative_error(mixer(x).y, expected) > 1e-3
    mixer.time_decay.fill_(-math.inf)
    assert relative_error(mixer(x).y, expected) > 1e-3
    mixer.bonus.fill_(1.0)
    assert relative_error(mixer(x).y, expected) < 1e-12


@torch.no_grad()
def test_both_conventions_of_the_token_shift_are_one(x: Tensor) -> None:
    own = torch.rand(D, dtype=torch.float64)
    streams, last = TokenShift({"a": 1 - own, "b": torch.zeros(D, dtype=torch.float64)})(x, None)
    torch.testing.assert_close(streams["a"], own * x + (1 - own) * shifted(x))
    assert torch.equal(streams["b"], x)
    assert torch.equal(last, x[:, -1])
    streams, _ = TokenShift({"a": torch.ones(D, dtype=torch.float64)})(x, last)
    torch.testing.assert_close(streams["a"][:, 0], x[:, -1])


def test_a_single_layer_is_the_first() -> None:
    assert depth(LayerInfo(0, 1, D)) == depth(LayerInfo(0, 4, D)) == (0, 1)
    assert depth(LayerInfo(3, 4, D)) == (1, 0.25)
    for cls in (RWKV4, RWKV5, RWKV6, RWKV7):
        for layer in (LayerInfo(0, 1, D), LayerInfo(1, 2, D)):
            assert all(parameter.isfinite().all() for parameter in build(cls, layer).parameters())


@pytest.mark.parametrize("cls", [RWKV5, RWKV6])
@torch.no_grad()
def test_decays_and_bonus_start_as_published(cls: type[Mixer]) -> None:
    first, last = (build(cls, LayerInfo(index, 3, D)) for index in (0, 2))
    for mixer, power in ((first, 0.7), (last, 2.0)):
        expected = [-6 + 5 * (n / 15) ** power for n in range(D)]
        assert mixer.time_decay.flatten().tolist() == pytest.approx(expected, abs=1e-6)
        log_decay = mixer.log_decay(dict.fromkeys("w", torch.randn(B, T, D, dtype=torch.float64))).flatten(-2)
        assert log_decay.exp()[0, 0].tolist() == pytest.approx([math.exp(-math.exp(d)) for d in expected], abs=1e-6)
    assert first.bonus.flatten().tolist()[:4] == pytest.approx([0, 0.1, -0.1, 0], abs=1e-6)
    assert last.bonus.flatten().tolist()[:4] == pytest.approx([1, 1 - 1 / 15 + 0.1, 1 - 2 / 15 - 0.1, 1 - 3 / 15], abs=1e-6)
    # half-lives in tokens, from below two to almost three hundred
    halves = math.log(2) / first.time_decay.exp()
    assert 1.8 < halves.min() < 2
    assert 270 < halves.max() < 290


@pytest.mark.parametrize("cls", [RWKV5, RWKV6])
def test_mixes_start_as_published(cls: type[Mixer]) -> None:
    mixer = build(cls, LayerInfo(1, 2, D))
    own = {name: 1 - mix for name, mix in zip(mixer.shift.names, mixer.shift.mix, strict=True)}
    i = torch.arange(D, dtype=torch.float64) / D
    wanted = {"k": i**0.5, "w": i**0.5, "v": i**0.5 + 0.3, "r": i**0.25, "g": i**0.25}
    for name, share in own.items():
        torch.testing.assert_close(share, wanted[name], rtol=0, atol=1e-6)
    torch.testing.assert_close(own_share(D, 1.0).double(), i)


RULES = {
    RWKV4: {"shift.mix", "time_decay", "time_first"},
    RWKV5: {"shift.mix", "readout.norm.weight", "readout.norm.bias", "time_decay", "bonus"},
    RWKV6: {"shift.mix", "shift.first", "readout.norm.weight", "readout.norm.bias", "time_decay", "bonus"},
    RWKV7: {"shift.mix", "readout.norm.weight", "readout.norm.bias", "w0", "a0", "v0", "k_k", "k_a", "r_k"},
}


@pytest.mark.parametrize("cls", RULES)
def test_what_is_no_map_does_not_decay(cls: type[Mixer]) -> None:
    mixer = build(cls)
    rules = mixer.parameter_rules()
    assert set(rules) == RULES[cls]
    assert not any(rule.decay for rule in rules.values())
    maps = {f"{name}.weight" for name, module in mixer.named_modules() if isinstance(module, nn.Linear)}
    assert {name for name, parameter in mixer.named_parameters() if parameter.dim() > 1} - set(rules) == maps
    assert {name for name, rule in rules.items() if rule.lr_scale != 1} == ({"w0"} if cls is RWKV7 else set())
    around = {name for name in RULES[cls] if not name.startswith("shift.")} - {"readout.norm.bias", "v0", "r_k"}
    assert set(controlled(cls).parameter_rules()) == around


@pytest.mark.parametrize(
    ("cls", "letter", "off"),
    [
        (RWKV4, "r", {"output_gate": "none"}),
        (RWKV5, "g", {"output_gate": "none"}),
        (RWKV6, "g", {"output_gate": "none"}),
        (RWKV7, "g", {"low_rank_gate": False}),
    ],
)
def test_without_a_gate_nothing_is_made_for_it(cls: type[Mixer], letter: str, off: dict[str, Any]) -> None:
    assert letter in build(cls).shift.names
    mixer = build(cls, **off)
    assert letter not in mixer.shift.names
    generator = torch.Generator().manual_seed(0)
    for linear in [mixer.key, mixer.output] if cls is RWKV4 else [mixer.readout.linear]:
        linear.weight.data.normal_(generator=generator)
    x = torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mixer(x).y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in mixer.shift.parameters())

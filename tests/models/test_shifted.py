"""RWKV, all four of them: each against a loop over its equation, its initial values, and what it must equal
where it is something simpler."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.token_shift import TokenShift, layer_depth, own_token_share
from linbench.models.linear_attention import LinearAttention
from linbench.models.rwkv4 import RWKV4
from linbench.models.rwkv5 import RWKV5
from linbench.models.rwkv6 import RWKV6
from linbench.models.rwkv7 import RWKV7
from tests.helpers.models import HEADS, B, D, Error, Randomise
from tests.helpers.rwkv import K, T, build, controlled, eagle, group_norm, heads, mixed, shifted


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


FORMS = [(cls, form) for cls in (RWKV4, RWKV5, RWKV6, RWKV7) for form in ("native", "controlled")]


@pytest.mark.parametrize(("cls", "form"), FORMS)
def test_replicas_stack(
    cls: type[Mixer], form: str, x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixers = [randomise(build(cls) if form == "native" else controlled(cls)) for _ in range(3)]
    weights, _ = torch.func.stack_module_state(mixers)
    inputs = torch.stack([x, 2 * x, -x])
    stacked = torch.vmap(lambda own, given: torch.func.functional_call(mixers[0], own, (given,)).y)(
        weights, inputs
    )
    alone = torch.stack([mixer(given).y for mixer, given in zip(mixers, inputs, strict=True)])
    assert relative_error(stacked, alone) < 1e-10
    gradients = torch.autograd.grad(stacked.square().sum(), list(weights.values()), allow_unused=True)
    wanted = zip(
        *(
            torch.autograd.grad(mixer(given).y.square().sum(), list(mixer.parameters()), allow_unused=True)
            for mixer, given in zip(mixers, inputs, strict=True)
        ),
        strict=True,
    )
    for name, one, other in zip(weights, gradients, wanted, strict=True):
        if other[0] is not None and torch.stack(other).abs().max() > 1e-9:
            assert relative_error(one, torch.stack(other)) < 1e-8, name


@torch.no_grad()
@pytest.mark.parametrize(("cls", "form"), FORMS)
def test_under_autocast_it_is_near(
    cls: type[Mixer], form: str, x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
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
    r, k, v = (
        heads(read[letter] @ weight.mT)
        for letter, weight in zip("rkv", mixer.project.linear.weight.split(D), strict=True)
    )
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
    r, k, v = (
        heads(read[letter] @ weight.mT)
        for letter, weight in zip("rkv", mixer.project.linear.weight.split(D), strict=True)
    )
    offset = torch.tanh(read["w"] @ mixer.decay.down.weight.mT) @ mixer.decay.up.weight.mT
    w = torch.exp(-torch.exp(mixer.time_decay + heads(offset)))
    assert 0.05 < w.std() < 0.5
    o = eagle(r, k, v, w, mixer.bonus)
    gate = F.silu(read["g"] @ mixer.readout.gate.weight.mT)
    expected = (group_norm(o, mixer) * gate) @ mixer.readout.linear.weight.mT
    assert relative_error(mixer(x).y, expected) < 1e-10


@torch.no_grad()
def test_rwkv6_whose_tokens_say_nothing_is_rwkv5(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    six, five = randomise(build(RWKV6)), build(RWKV5)
    five.load_state_dict(
        {name: six.state_dict()[name] for name in five.state_dict() if name != "shift.mix"}, strict=False
    )
    five.shift.mix.copy_(six.shift.mix[[six.shift.names.index(name) for name in five.shift.names]])
    expected = five(x).y
    assert relative_error(six(x).y, expected) > 1e-3
    six.decay.down.weight.zero_()
    assert relative_error(six(x).y, expected) > 1e-3
    six.shift.down.weight.zero_()
    assert relative_error(six(x).y, expected) < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("cls", [RWKV5, RWKV6])
def test_without_decay_and_with_all_of_its_own_write_it_is_linear_attention(
    cls: type[Mixer], x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer, plain = (
        randomise(controlled(cls)),
        controlled(LinearAttention, feature_map="identity", normalise=False),
    )
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


@pytest.mark.parametrize("cls", [RWKV5, RWKV6])
@torch.no_grad()
def test_decays_and_bonus_start_as_published(cls: type[Mixer]) -> None:
    first, last = (build(cls, LayerInfo(index, 3, D)) for index in (0, 2))
    for mixer, power in ((first, 0.7), (last, 2.0)):
        expected = [-6 + 5 * (n / 15) ** power for n in range(D)]
        assert mixer.time_decay.flatten().tolist() == pytest.approx(expected, abs=1e-6)
        log_decay = mixer.log_decay(dict.fromkeys("w", torch.randn(B, T, D, dtype=torch.float64))).flatten(-2)
        assert log_decay.exp()[0, 0].tolist() == pytest.approx(
            [math.exp(-math.exp(d)) for d in expected], abs=1e-6
        )
    assert first.bonus.flatten().tolist()[:4] == pytest.approx([0, 0.1, -0.1, 0], abs=1e-6)
    assert last.bonus.flatten().tolist()[:4] == pytest.approx(
        [1, 1 - 1 / 15 + 0.1, 1 - 2 / 15 - 0.1, 1 - 3 / 15], abs=1e-6
    )
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
    torch.testing.assert_close(own_token_share(D, 1.0).double(), i)


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
    around = {name for name in RULES[cls] if not name.startswith("shift.")} - {
        "readout.norm.bias",
        "v0",
        "r_k",
    }
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


def test_a_single_layer_is_the_first() -> None:
    assert layer_depth(LayerInfo(0, 1, D)) == layer_depth(LayerInfo(0, 4, D)) == (0, 1)
    assert layer_depth(LayerInfo(3, 4, D)) == (1, 0.25)
    for cls in (RWKV4, RWKV5, RWKV6, RWKV7):
        for layer in (LayerInfo(0, 1, D), LayerInfo(1, 2, D)):
            assert all(parameter.isfinite().all() for parameter in build(cls, layer).parameters())

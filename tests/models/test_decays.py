"""Variants that forget: each equation as a loop over tokens, how it forgets at first, and where one is
another."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import Mixer, Rule
from linbench.models.blocks.gates import StepDecay, UniformDecay
from linbench.models.dfw import DFW
from linbench.models.gla import GLA
from linbench.models.hgrn2 import HGRN2
from linbench.models.lightning import Lightning
from linbench.models.mamba2 import Mamba2
from linbench.models.retnet import RetNet
from tests.helpers.decayed_sums import T, build, convolved, gated, in_heads, looped, normed, projected, turned
from tests.helpers.models import HEADS, B, D, Error, Randomise


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize(
    ("law", "decays"), [("powers", [1 - 1 / 32, 1 - 1 / 64]), ("linspace", [1 - 1 / 32, 1 - 1 / 512])]
)
def test_retnet_by_hand(
    x: Tensor, randomise: Randomise, relative_error: Error, law: str, decays: list[float]
) -> None:
    mixer = randomise(build(RetNet, decay_law=law))
    # which the mixer has in float32
    mixer.decay.log_decay.copy_(torch.tensor(decays, dtype=torch.float64).log())
    q, k, v = projected(mixer, x, D, D, 2 * D)
    o = (
        looped(turned(q), turned(k), v, torch.tensor(decays, dtype=torch.float64)[:, None])
        / (D // HEADS) ** 0.5
    )
    assert relative_error(mixer(x).y, gated(mixer, o, x, F.silu)) < 1e-10


@pytest.mark.parametrize(
    ("law", "heads", "decays"),
    [
        ("powers", 2, [0.96875, 0.984375]),
        ("powers", 4, [1 - 2.0**-5, 1 - 2.0**-6, 1 - 2.0**-7, 1 - 2.0**-8]),
        ("linspace", 1, [1 - 1 / 32]),
        ("linspace", 2, [1 - 1 / 32, 1 - 1 / 512]),
        ("linspace", 3, [1 - 1 / 32, 1 - 2.0**-7, 1 - 1 / 512]),
    ],
)
def test_decays_of_retnet(law: str, heads: int, decays: list[float]) -> None:
    log_decay = build(RetNet, heads=heads, head_dim=4, decay_law=law).decay()
    assert log_decay.exp().tolist() == pytest.approx(decays, abs=1e-6)
    if (law, heads) == ("powers", 2):
        assert (math.log(0.5) / log_decay).tolist() == pytest.approx([22, 44], abs=0.5)


@torch.no_grad()
@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("law", ["alibi", "linear"])
def test_lightning_by_hand(
    x: Tensor, randomise: Randomise, relative_error: Error, law: str, index: int
) -> None:
    mixer = randomise(build(Lightning, law=law, index=index, count=3))
    if law == "alibi":
        slopes = torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64) * (1 - index / 2 + 1e-5)
    else:
        slopes = torch.tensor([0.0, 4.0], dtype=torch.float64) * (1 - index / 3)
    assert relative_error(-mixer.decay(), slopes) < 1e-6  # made in float32
    q, k, v = (F.silu(part) for part in projected(mixer, x, D, D, D))
    o = looped(q, k, v, mixer.decay().exp()[:, None])
    assert relative_error(mixer(x).y, gated(mixer, o, x, torch.sigmoid)) < 1e-10


def test_decays_of_lightning() -> None:
    def decays(law: str, index: int, count: int) -> list[float]:
        return build(Lightning, heads=4, law=law, index=index, count=count).decay().exp().tolist()

    assert decays("alibi", 0, 4) == pytest.approx([0.78, 0.94, 0.985, 0.996], abs=2e-3)
    assert decays("linear", 0, 4) == pytest.approx([1, 0.135, 0.018, 0.0025], rel=2e-2)
    for law in ("alibi", "linear"):
        assert decays(law, 0, 1) == decays(law, 0, 4)
    assert decays("alibi", 1, 2) == pytest.approx([1.0] * 4, abs=1e-5)
    assert max(decays("alibi", 1, 2)) < 1
    assert decays("linear", 1, 2)[1:] == pytest.approx([0.135**0.5, 0.018**0.5, 0.0025**0.5], rel=2e-2)


@torch.no_grad()
def test_gla_by_hand(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build(GLA))
    q, k, v = projected(mixer, x, D // 2, D // 2, D)
    logits = (
        x @ mixer.decay.project.down.weight.T @ mixer.decay.project.up.weight.T + mixer.decay.project.up.bias
    )
    o = looped(q, k, v, in_heads(torch.sigmoid(logits) ** (1 / 16))) / (D // 2 // HEADS) ** 0.5
    assert relative_error(mixer(x).y, gated(mixer, o, x, F.silu)) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize(
    ("settings", "decay"),
    [({}, 0.958), ({"gate_bias": 4.0}, (1 + math.exp(-4)) ** (-1 / 16)), ({"gate_divisor": 1.0}, 0.5)],
)
def test_gla_starts_with_one_decay_for_all(settings: dict[str, Any], decay: float) -> None:
    decays = build(GLA, **settings).decay(torch.zeros(1, 1, D, dtype=torch.float64)).exp()
    assert decays.shape == (1, 1, HEADS, D // 2 // HEADS)
    assert decays.flatten().tolist() == pytest.approx([decay] * (D // 2), abs=5e-4)


@torch.no_grad()
@pytest.mark.parametrize("index", [0, 1])
def test_hgrn2_by_hand(x: Tensor, randomise: Randomise, relative_error: Error, index: int) -> None:
    mixer = randomise(build(HGRN2, index=index))
    q, logits, v = projected(mixer, x, D, D, D)
    bound = torch.sigmoid(mixer.bound) if index else 0
    f = bound + (1 - bound) * torch.sigmoid(logits)
    o = looped(F.silu(q), 1 - f, v, f) / (D // HEADS) ** 0.5
    expected = normed(o.flatten(2), mixer.readout.norm.weight) @ mixer.readout.linear.weight.T
    assert relative_error(mixer(x).y, expected) < 1e-10


@torch.no_grad()
def test_hgrn2_with_its_surroundings_by_hand(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build(HGRN2, index=1, **HGRN2.controlled))
    q, logits, v = (in_heads(part) for part in convolved(mixer, x, D, D, D))
    q = F.silu(q) / (F.silu(q).square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()
    bound = torch.sigmoid(mixer.bound)
    f = bound + (1 - bound) * torch.sigmoid(logits)
    o = looped(q, 1 - f, F.silu(v), f) / (D // HEADS) ** 0.5
    assert (
        relative_error(
            mixer(x).y, normed(o, mixer.readout.norm.weight).flatten(2) @ mixer.readout.linear.weight.T
        )
        < 1e-10
    )


@torch.no_grad()
@pytest.mark.parametrize(
    ("index", "count", "decay"), [(0, 1, 0.5), (0, 2, 0.5), (1, 2, 0.75), (1, 4, 0.625), (3, 4, 0.875)]
)
def test_hgrn2_starts_at_the_middle_between_its_bound_and_one(index: int, count: int, decay: float) -> None:
    mixer = build(HGRN2, index=index, count=count)
    assert mixer.log_decay(torch.zeros(1, 1, HEADS, D // HEADS)).exp().flatten().tolist() == pytest.approx(
        [decay] * D
    )
    if index:
        assert torch.sigmoid(mixer.bound).flatten().tolist() == pytest.approx([index / count] * D)


@torch.no_grad()
@pytest.mark.parametrize("index", [0, 1])
def test_decays_of_hgrn2_keep_their_digits(index: int) -> None:
    logits = torch.linspace(-60, 60, 241)[:, None, None].expand(-1, HEADS, D // HEADS)
    wide, mixer = build(HGRN2, index=index).log_decay(logits.double()), build(HGRN2, index=index).float()
    narrow = mixer.log_decay(logits)
    assert (narrow <= 0).all()
    written, expected = -torch.expm1(narrow.double()), -torch.expm1(wide)
    assert ((written - expected).abs() <= 1e-5 * expected + 1e-37).all()
    assert mixer.bfloat16().log_decay(logits.bfloat16()).dtype == torch.float32


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2_by_hand(x: Tensor, randomise: Randomise, relative_error: Error, groups: int) -> None:
    mixer, width = randomise(build(Mamba2, groups=groups)), D // HEADS
    c, b, inner = (F.silu(part) for part in convolved(mixer, x, groups * width, groups * width, 2 * D))
    c, b = (part.unflatten(-1, (groups, -1)).expand(-1, -1, HEADS, -1) for part in (c, b))
    inner = in_heads(inner)
    step = F.softplus(x @ mixer.decay.project.weight.T + mixer.decay.dt_bias)
    y = (
        looped(c, b, step[..., None] * inner, (-mixer.decay.A_log.exp() * step).exp()[..., None])
        + mixer.skip[:, None] * inner
    )
    y = y.flatten(2) * F.silu(x @ mixer.readout.gate.weight.T)
    y = normed(y.unflatten(-1, (groups, -1)), mixer.readout.norm.weight.view(groups, -1)).flatten(2)
    assert relative_error(mixer(x).y, y @ mixer.readout.linear.weight.T) < 1e-10


@torch.no_grad()
def test_mamba2_of_several_groups_norms_each(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    """The source does the same; a norm of all heads together has another name."""
    settings = {groups: build(Mamba2, groups=groups).settings for groups in (1, 2, "null")}
    assert [each.output_norm for each in settings.values()] == ["rms_all", "rms_groups", "rms_groups"]
    assert build(Mamba2, output_norm="rms_groups").settings == settings[1]
    assert (
        Mamba2.Settings.parse({"groups": 2, **(Mamba2.controlled or {})}, where="model").output_norm == "rms"
    )
    each, together = (
        randomise(build(Mamba2, groups="null", output_norm=name)) for name in ("rms_groups", "rms_all")
    )
    assert relative_error(each(x).y, together(x).y) > 1e-2


@torch.no_grad()
def test_steps_and_decays_of_mamba2() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gate = StepDecay(4, 4096)
    log_decay, step = (part.flatten() for part in gate.with_step(torch.zeros(1, 1, 4)))
    assert 8 < (math.log(0.5) / log_decay).median() < 13
    assert step.min() >= 1e-3 * (1 - 1e-3)
    assert step.max() <= 0.1 * (1 + 1e-3)
    assert step.median().item() == pytest.approx(0.01, rel=0.1)
    rates = -log_decay / step
    assert rates.min() >= 1 - 1e-3
    assert rates.max() <= 16 + 1e-2
    assert build(Mamba2).skip.tolist() == [1.0] * HEADS


@torch.no_grad()
def test_the_decay_that_comes_with_a_step_is_the_decay(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    gate = randomise(StepDecay(D, HEADS)).double()
    assert relative_error(gate.with_step(x)[0], gate(x)) < 1e-12


@torch.no_grad()
def test_dfw_by_hand(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build(DFW))
    q, k, v = projected(mixer, x, D // 2, D // 2, D)
    f, g = (
        in_heads(torch.sigmoid(x @ gate.project.weight.T + gate.project.bias))
        for gate in (mixer.key_decay, mixer.value_decay)
    )
    o = normed(looped(q, k, v, f, g) / (D // 2 // HEADS) ** 0.5, mixer.readout.norm.weight)
    assert relative_error(mixer(x).y, o.flatten(2) @ mixer.readout.linear.weight.T) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("dim", [1, 2, 2048])
def test_gates_of_dfw_start_uniform(dim: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gate = UniformDecay(4, 2, dim)
    decays = gate(torch.zeros(1, 1, 4)).exp()
    assert decays.shape == (1, 1, 2, dim)
    edge = 1 / max(2 * dim, 3)
    assert decays.min() >= edge * (1 - 1e-3)
    assert decays.max() <= 1 - edge * (1 - 1e-3)
    if dim > 2:
        assert decays.median().item() == pytest.approx(0.5, abs=0.03)
        assert torch.histc(decays, 8, 0, 1).tolist() == pytest.approx([512] * 8, rel=0.2)


@torch.no_grad()
def test_dfw_that_forgets_at_once_overflows_nowhere(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build(DFW))
    for gate in (mixer.key_decay, mixer.value_decay):
        gate.project.bias.copy_(
            torch.where(torch.arange(gate.project.bias.numel()) % 3 == 0, 3.0, math.log(1e-6))
        )
    expected = mixer(x).y
    mixer.float()
    assert relative_error(mixer(x.float()).y, expected) < 1e-5


def test_groups_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.groups = 3 does not divide model\.heads = 2"):
        build(Mamba2, groups=3)


@torch.no_grad()
def test_decays_of_extreme_logits_are_finite_and_wide(randomise: Randomise) -> None:
    gate = randomise(build(GLA)).decay.bfloat16()
    log_decay = gate(torch.linspace(-1e4, 1e4, 3 * D).view(1, 3, D).bfloat16())
    assert log_decay.dtype == torch.float32
    assert log_decay.isfinite().all()
    assert (log_decay <= 0).all()
    assert log_decay.min() < -100


UNDECAYED: dict[type[Mixer], set[str]] = {
    RetNet: set(),
    Lightning: set(),
    GLA: {"decay.project.up.bias"},
    HGRN2: set(),
    Mamba2: {"decay.A_log", "decay.dt_bias", "skip"},
    DFW: {"key_decay.project.bias", "value_decay.project.bias"},
}


@pytest.mark.parametrize(("cls", "names"), UNDECAYED.items())
def test_what_does_not_decay(cls: type[Mixer], names: set[str]) -> None:
    rules = build(cls).parameter_rules()
    assert {name for name, rule in rules.items() if rule.decay is False} == names == rules.keys()
    assert names <= dict(build(cls).named_parameters()).keys()


def test_mamba2_has_no_skip_in_the_controlled_form() -> None:
    native, controlled = build(Mamba2), build(Mamba2, **Mamba2.controlled)
    assert controlled.parameter_rules().keys() == {"decay.A_log", "decay.dt_bias"}
    # values of D for keys of D / HEADS
    assert native.recurrence_flops(9) == HEADS * (5 * (D // HEADS) * D + 3 * D)
    assert controlled.recurrence_flops(9) == HEADS * (5 * (D // HEADS) ** 2 + D // HEADS)


def test_only_later_layers_of_hgrn2_have_a_bound() -> None:
    later = build(HGRN2, index=1)
    assert later.parameter_rules() == {"bound": Rule(decay=False)}
    assert later.bound.shape == (HEADS, D // HEADS)
    assert "bound" not in dict(build(HGRN2).named_parameters())

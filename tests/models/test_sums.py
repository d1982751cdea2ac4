"""Memories that are sums: each against a loop of its equation, and where one must equal another or a
formula."""

import math
import re
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.denominator import keep_from_zero
from linbench.models.blocks.feature_maps import DPFP, FeatureMapName, feature_map
from linbench.models.blocks.random_features import directions
from linbench.models.linear_attention import LinearAttention
from linbench.models.performer import Performer
from linbench.models.rfa import RFA
from linbench.models.transnormer import TransNormer
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 37
HEAD = D // HEADS


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def projected(mixer: Mixer, x: Tensor, heads: int = HEADS) -> list[Tensor]:
    """q, k, v [B, T, H, ...] of a layer without convolution, before any feature map."""
    project = mixer.project
    return [
        part.unflatten(-1, (heads, -1))
        for part in (x @ project.linear.weight.T).split(project.widths, dim=-1)
    ]


def read_out(mixer: Mixer, o: Tensor) -> Tensor:
    """Return the output of a layer without output norm and gate."""
    return o.flatten(-2) @ mixer.readout.linear.weight.T


def summed(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """S_t^T q_t and z_t . q_t of every token, one after the other; with a gate g [B, T, H] the state is kept
    by g and written to by 1 - g."""
    memory, normaliser = (
        torch.zeros(B, HEADS, q.shape[-1], v.shape[-1]).double(),
        torch.zeros(B, HEADS, q.shape[-1]).double(),
    )
    o, totals = [], []
    for t in range(q.shape[1]):
        kept, strength = (
            (torch.ones(1), torch.ones(1)) if g is None else (g[:, t, :, None], 1 - g[:, t, :, None])
        )
        memory = kept[..., None] * memory + (strength * k[:, t])[..., None] * v[:, t, :, None, :]
        normaliser = kept * normaliser + strength * k[:, t]
        o.append((memory * q[:, t, :, :, None]).sum(dim=2))
        totals.append((normaliser * q[:, t]).sum(dim=-1, keepdim=True))
    return torch.stack(o, dim=1), torch.stack(totals, dim=1)


@torch.no_grad()
def test_linear_attention_is_its_loop(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(LinearAttention))
    q, k, v = projected(mixer, x)
    phi = [torch.where(part > 0, part + 1, part.exp()) for part in (q, k)]
    o, total = summed(*phi, v)
    assert relative_error(mixer(x).y, read_out(mixer, o / (total + 1e-6))) < 1e-10


def test_dpfp_multiplies_neighbours_of_both_signs() -> None:
    x = torch.tensor([2.0, -3.0, 5.0])
    r = [2.0, 0.0, 5.0, 0.0, 3.0, 0.0]
    expected = [r[i] * r[(i - j) % 6] for j in (1, 2) for i in range(6)]
    assert DPFP(3, 2).features(x).tolist() == expected
    assert DPFP(3, 2).width == 12
    # -relu(x) in the place of relu(-x) would lose what is below zero
    assert not torch.equal(DPFP(3, 2).features(torch.tensor([2.0, -1.0, 5.0])), DPFP(3, 2).features(x))


def test_learned_maps_are_their_formulas(
    generator: torch.Generator, relative_error: Error, randomise: Randomise
) -> None:
    q, k = torch.randn(2, B, T, HEADS, HEAD, generator=generator).double()

    def softmax(x: Tensor) -> Tensor:
        return torch.cat([x, -x], dim=-1).mul(2).softmax(dim=-1)

    fresh = feature_map("hedgehog", HEAD).double()
    assert relative_error(fresh(q, k)[0], softmax(q)) < 1e-12
    assert relative_error(fresh(q, k)[1], softmax(k)) < 1e-12
    maps = {name: randomise(feature_map(name, HEAD)).double() for name in ("hedgehog", "t2r", "hadamard")}
    for which in (0, 1):
        x = (q, k)[which]
        made = {name: one(q, k)[which] for name, one in maps.items()}
        assert relative_error(made["hedgehog"], softmax(x @ maps["hedgehog"].weight[which, 0].T)) < 1e-12
        assert relative_error(made["t2r"], (x @ maps["t2r"].weight[which, 0].T).relu()) < 1e-12
        first, second = maps["hadamard"].weight[which]
        assert relative_error(made["hadamard"], (x @ first.T) * (x @ second.T)) < 1e-12


def test_polynomials_are_their_formulas(generator: torch.Generator, relative_error: Error) -> None:
    x = torch.randn(B, T, HEADS, HEAD, generator=generator).double()
    one, two, three, pairs = (
        feature_map(name, HEAD).double() for name in ("powers-1", "powers-2", "powers-3", "monomials-2")
    )
    assert torch.equal(one.features(x), x)
    assert torch.equal(feature_map("exp", HEAD).features(x), x.exp())
    assert relative_error(two.features(x), x + x**2 / 2) < 1e-12
    assert relative_error(three.features(x), x + x**2 / 2 + x**3 / 6) < 1e-7  # 1/6 is stored in float32
    products = [x[..., i] * x[..., j] / 2 for i in range(HEAD) for j in range(i, HEAD)]
    assert relative_error(pairs.features(x), torch.cat([x, torch.stack(products, dim=-1)], dim=-1)) < 1e-12


@pytest.mark.parametrize(
    "name",
    get_args(FeatureMapName),
)
@torch.no_grad()
def test_maps_say_their_width_and_whether_they_are_positive(name: Any, generator: torch.Generator) -> None:
    x = torch.randn(B, T, HEADS, HEAD, generator=generator)
    one = feature_map(name, HEAD)
    for features in one(x, -x):
        assert features.shape == (B, T, HEADS, one.width)
        assert one.positive == bool((features >= 0).all())
    learned = sum(p.numel() for p in one.parameters() if p.dim() > 1)
    # two operations for each of half the numbers: queries have one half, keys the other
    assert one.flops == learned
    around = {"normalise": False, "feature_map": name}
    if one.positive:
        project = build_mixer(LinearAttention, **around, qk_norm="l1").project
        given = x[..., 0, :].repeat(1, 1, 2).double()
        q, k, *_ = project(given, None)
        for features in (q, k):
            total = features.sum(dim=-1)
            assert (total <= 1 + 1e-12).all()
            assert total.median() > 0.99
    else:
        with pytest.raises(
            UserError,
            match=rf"model.qk_norm = l1 .*model.feature_map = {re.escape(name)}",
        ):
            build_mixer(LinearAttention, **around, qk_norm="l1")


def test_flops_follow_the_features() -> None:
    plain, wide, learned = (
        build_mixer(LinearAttention, feature_map=name).recurrence_flops(9)
        for name in ("relu", "dpfp-2", "t2r")
    )
    assert plain == HEADS * HEAD * (HEAD + 1) * 4
    assert wide == 4 * plain
    assert learned == plain + HEADS * 2 * 2 * HEAD**2
    attended, mapped = (
        build_mixer(Attention, feature_map=name).recurrence_flops(9) for name in ("identity", "t2r")
    )
    assert mapped == attended + HEADS * 2 * 2 * HEAD**2


@torch.no_grad()
def test_transnormer_is_its_loop(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(TransNormer))
    q, k, v = projected(mixer, x)
    phi = [torch.where(part > 0, part, part.exp() - 1) for part in (q, k)]
    o, _ = summed(*phi, v * v.sigmoid())
    o = o.flatten(2) / HEAD**0.5
    normed = o / (o.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * mixer.readout.norm.weight
    gate = x @ mixer.readout.gate.weight.T
    assert (
        relative_error(mixer(x).y, (normed * gate * gate.sigmoid()) @ mixer.readout.linear.weight.T) < 1e-10
    )


@torch.no_grad()
def test_transnormer_in_the_controlled_form_is_linear_attention_with_elu(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    one = randomise(build_mixer(TransNormer, **TransNormer.controlled))
    other = build_mixer(LinearAttention, **LinearAttention.controlled, normalise=False, feature_map="elu")
    other.load_state_dict(one.state_dict())
    assert relative_error(one(x).y, other(x).y) < 1e-12
    with_swish = build_mixer(TransNormer, **{**TransNormer.controlled, "value_swish": True})
    with_swish.load_state_dict(one.state_dict())
    assert relative_error(with_swish(x).y, other(x).y) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("name", ["favor+", "favor-relu"])
def test_performer_is_its_loop(x: Tensor, randomise: Randomise, relative_error: Error, name: str) -> None:
    mixer = randomise(build_mixer(Performer, feature_map=name, features=20))
    q, k, v = projected(mixer, x)
    w = mixer.project.feature_map.directions
    assert w.shape == (20, HEAD)
    dots = [part / HEAD**0.25 @ w.T for part in (q, k)]
    halves = [part.square().sum(dim=-1, keepdim=True) / HEAD**0.5 / 2 for part in (q, k)]
    if name == "favor+":
        largest = (dots[0] - halves[0]).max(dim=-1, keepdim=True).values
        phi = [
            ((dots[0] - halves[0] - largest).exp() + 1e-4) / 20**0.5,
            ((dots[1] - halves[1]).exp() + 1e-4) / 20**0.5,
        ]
    else:
        phi = [dot.relu() + 1e-3 for dot in dots]
    o, total = summed(*phi, v)
    assert relative_error(mixer(x).y, read_out(mixer, o / (total + 1e-6))) < 1e-10


@pytest.mark.slow
@torch.no_grad()
def test_performer_of_many_features_is_softmax_attention(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    x = 0.3 * x  # the variance of the estimate grows with the exponential of what is estimated
    attention = randomise(build_mixer(Attention, positions="none"))
    expected = attention(x).y
    errors = []
    for features in (16, 1 << 15):
        mixer = build_mixer(Performer, features=features)
        mixer.load_state_dict(attention.state_dict(), strict=False)
        errors.append(relative_error(mixer(x).y, expected))
    assert errors[1] < 0.01 < 0.1 < errors[0]
    attention.project.linear.weight[:D] = 0
    assert relative_error(attention(x).y, expected) > 0.1  # more than the mean


@torch.no_grad()
def test_a_performers_past_does_not_feel_how_large_later_keys_are(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(Performer)).float()
    later = torch.cat([x[:, :9], 100 * x[:, 9:]], dim=1).float()
    assert torch.equal(mixer(later).y[:, :9], mixer(x.float()).y[:, :9])
    assert mixer(later).y.isfinite().all()


def test_directions_are_orthogonal_and_as_long_as_they_should_be() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        free, orthogonal, equal = (
            directions(20, 8, orthogonal=o, equal_norms=e)
            for o, e in ((False, False), (True, False), (True, True))
        )
        many = directions(20_000, 8, orthogonal=True)
    for block in range(0, 20, 8):
        for w in (orthogonal, equal):
            gram = w[block : block + 8] @ w[block : block + 8].T
            assert (gram - gram.diagonal().diag()).abs().max() < 1e-5
    gram = free[:8] @ free[:8].T
    assert (gram - gram.diagonal().diag()).abs().max() > 1
    assert (equal.norm(dim=-1) - 8**0.5).abs().max() < 1e-5
    assert orthogonal.norm(dim=-1).std() > 0.3
    # each as one of a Gaussian's: mean 0, variance 1, squared length 8 on average with variance 16
    assert many.mean(dim=0).abs().max() < 0.03
    assert (many.T @ many / len(many) - torch.eye(8)).abs().max() < 0.04
    squared = many.square().sum(dim=-1)
    assert abs(squared.mean() - 8) < 0.15
    assert abs(squared.var() - 16) < 1


def test_directions_are_kept_but_not_trained() -> None:
    mixer = build_mixer(Performer)
    assert "project.feature_map.directions" in mixer.state_dict()
    assert all("directions" not in name for name, _ in mixer.named_parameters())
    assert mixer.recurrence_flops(9) == HEADS * 16 * (HEAD + 1) * 4 + 2 * HEADS * 2 * 16 * HEAD


@torch.no_grad()
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_rfa_is_its_loop(
    x: Tensor, randomise: Randomise, relative_error: Error, gated: bool, normalise: bool
) -> None:
    mixer = randomise(build_mixer(RFA, gated=gated, normalise=normalise, output_norm="none", directions=12))
    mixer.project.feature_map.sigma.add_(2)  # the kernel is narrow, and sums of weights have either sign
    sigma, w = mixer.project.feature_map.sigma, mixer.project.feature_map.directions
    q, k, v = projected(mixer, x)
    phi = []
    for part in (q, k):
        unit = part / (part.square().sum(dim=-1, keepdim=True).sqrt() + 1e-3)
        angles = torch.stack([unit[:, :, h] @ (w * sigma[h]).T for h in range(HEADS)], dim=2)
        phi.append(torch.cat([angles.sin(), angles.cos()], dim=-1) / 12**0.5)
    g = torch.sigmoid(x @ mixer.gate.weight.T + mixer.gate.bias) if gated else None
    o, total = summed(*phi, v, g)
    if normalise:
        assert total.min() < 0 < total.max()
        o = o / torch.where(total.abs() > 1e-3, total, total.sign() * 1e-3)
    assert relative_error(mixer(x).y, read_out(mixer, o)) < 1e-10


def test_what_is_near_zero_keeps_its_sign() -> None:
    assert keep_from_zero(torch.tensor([-2.0, -1e-4, 0.0, 1e-9, 3.0]), 1e-3).tolist() == pytest.approx(
        [-2, -1e-3, 1e-3, 1e-3, 3]
    )


@torch.no_grad()
def test_rfa_estimates_a_gaussian_kernel(generator: torch.Generator) -> None:
    q, k = torch.randn(2, 1, 5, HEADS, HEAD, generator=generator).double()
    of_q, of_k = build_mixer(RFA, directions=1 << 15).project.feature_map(q, k)
    distance = torch.nn.functional.normalize(q, dim=-1) - torch.nn.functional.normalize(k, dim=-1)
    assert ((of_q * of_k).sum(dim=-1) - (-distance.square().sum(dim=-1) / 2).exp()).abs().max() < 0.03
    assert (of_q.square().sum(dim=-1) - 1).abs().max() < 1e-12


@torch.no_grad()
def test_an_rfa_that_keeps_everything_is_the_plain_one(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    around = {"normalise": False, "output_norm": "none"}
    gated, plain = randomise(build_mixer(RFA, gated=True, **around)), build_mixer(RFA, **around)
    plain.load_state_dict(gated.state_dict(), strict=False)
    expected = plain(x).y
    assert relative_error(gated(x).y, expected) > 1e-1
    gated.gate.weight.zero_()
    gated.gate.bias.fill_(30)
    assert relative_error(gated(x).y * (1 + math.exp(30)), expected) < 1e-10  # 1 - g is what it writes with


@torch.no_grad()
def test_rfas_gate_starts_near_one_half() -> None:
    mixer = build_mixer(RFA, LayerInfo(0, 1, 64), gated=True, heads=64)
    x = torch.randn(1, 500, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    half_lives = math.log(0.5) / torch.nn.functional.logsigmoid(mixer.gate(x))
    assert 0.8 < half_lives.median() < 1.25
    assert half_lives.quantile(0.99) < 10


def test_rfas_scale_does_not_decay() -> None:
    assert build_mixer(RFA).parameter_rules() == {"project.feature_map.sigma": (False, 1.0)}
    assert build_mixer(RFA, gated=True).recurrence_flops(9) == build_mixer(RFA).recurrence_flops(
        9
    ) + HEADS * 128 * (HEAD + 1)

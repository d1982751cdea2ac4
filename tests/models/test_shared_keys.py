"""Softmax attention with fewer keys than queries, fewer rotated dimensions, norms and gates, by hand."""

import math
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.attention import Attention
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import LayerInfo, Mixer
from linbench.models.fox import FoX
from linbench.models.gated_attention import GatedAttention
from tests.helpers.cells import plan
from tests.helpers.models import B, D, Error, Randomise, build_mixer, streamed

HEADS, HEAD = 4, 4
FOUR: dict[str, Any] = {"heads": HEADS}


def turned(x: Tensor, position: int, dims: int) -> Tensor:
    """The first `dims` dimensions of x [..., K], turned in pairs i and i + dims / 2."""
    y = x.clone()
    for i in range(dims // 2):
        angle = position * 10_000 ** (-2 * i / dims)
        a, b = x[..., i], x[..., i + dims // 2]
        y[..., i] = a * math.cos(angle) - b * math.sin(angle)
        y[..., i + dims // 2] = a * math.sin(angle) + b * math.cos(angle)
    return y


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight


def by_hand(mixer: Any, x: Tensor) -> Tensor:
    """The layer token by token and head by head, from its weights."""
    s, weights = mixer.settings, dict(mixer.named_parameters())
    kv_heads = s.kv_heads or s.heads
    widths = [s.heads * HEAD, kv_heads * HEAD, kv_heads * HEAD]
    q, k, v = (x @ w.T for w in weights["project.linear.weight"].split(widths))
    q, k, v = (each.unflatten(-1, (-1, HEAD)) for each in (q, k, v))
    if s.qk_norm != "none":
        shift = float(s.qk_norm == "rms_centred")
        q = rms(q, shift + weights["project.q_norm.weight"])
        k = rms(k, shift + weights["project.k_norm.weight"])
    if s.positions == "rope":
        dims = round(s.rope_fraction * HEAD)
        q, k = (
            torch.stack([turned(each[:, t], t, dims) for t in range(x.shape[1])], dim=1) for each in (q, k)
        )
    rows = []
    for t in range(x.shape[1]):
        heads = []
        for h in range(s.heads):
            own = h // (s.heads // kv_heads)
            scores = (k[:, : t + 1, own] @ q[:, t, h, :, None])[..., 0] / math.sqrt(HEAD)
            if "forget.weight" in weights:
                gates = x[:, : t + 1] @ weights["forget.weight"][h] + weights["forget.bias"][h]
                after = torch.nn.functional.logsigmoid(gates).flip(1).cumsum(1).flip(1)
                scores = scores + torch.cat([after[:, 1:], torch.zeros_like(after[:, :1])], dim=1)
            heads.append((scores.softmax(dim=1)[..., None] * v[:, : t + 1, own]).sum(dim=1))
        o = torch.cat(heads, dim=-1)
        if s.output_gate == "sigmoid":
            o = o * torch.sigmoid(x[:, t] @ weights["readout.gate.weight"].T)
        rows.append(o @ weights["readout.linear.weight"].T)
    return torch.stack(rows, dim=1)


FORMS: dict[str, tuple[type[Mixer], dict[str, Any]]] = {
    "grouped": (Attention, {"kv_heads": 2}),
    "multi-query": (Attention, {"kv_heads": 1, "positions": "none"}),
    "half rotated": (Attention, {"rope_fraction": 0.5}),
    "normed as Qwen3": (Attention, {"qk_norm": "rms", "kv_heads": 2}),
    "fox": (FoX, {"kv_heads": 2}),
    "fox with positions": (FoX, {"kv_heads": 2, "positions": "rope", "rope_fraction": 0.5}),
    "gated": (GatedAttention, {"rope_fraction": 0.5, "kv_heads": 1}),
}
each_form = pytest.mark.parametrize("form", FORMS)


def drawn(generator: torch.Generator, length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


@each_form
@pytest.mark.parametrize("length", [1, 63, 65, 100])
def test_outputs_and_gradients_are_those_of_the_loop(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str, length: int
) -> None:
    cls, settings = FORMS[form]
    mixer = randomise(build_mixer(cls, **FOUR, **settings))
    x = drawn(generator, length).requires_grad_()
    wanted = [x, *mixer.parameters()]
    y, expected = mixer(x).y, by_hand(mixer, x)
    assert relative_error(y, expected) < 1e-12
    weight = torch.randn(y.shape, dtype=torch.float64, generator=generator)
    found, by_loop = (torch.autograd.grad((each * weight).sum(), wanted) for each in (y, expected))
    for one, other in zip(found, by_loop, strict=True):
        assert (one - other).abs().max() <= 1e-10 * max(1.0, float(other.abs().max()))


@each_form
@pytest.mark.parametrize("length", [65, 100])
@torch.no_grad()
def test_streams_prompts_and_single_tokens_are_those_of_the_loop(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str, length: int
) -> None:
    cls, settings = FORMS[form]
    mixer, x = randomise(build_mixer(cls, **FOUR, **settings)), drawn(generator, length)
    expected = by_hand(mixer, x)
    for y in streamed(mixer, x, prompt=60):
        assert relative_error(y, expected) < 1e-12


@pytest.mark.parametrize("cls", [Attention, FoX, GatedAttention])
@pytest.mark.parametrize("form", ["native", "controlled"])
@torch.no_grad()
def test_as_many_keys_as_queries_is_what_it_was_bit_for_bit(
    generator: torch.Generator, cls: type[Mixer], form: str
) -> None:
    settings = {**FOUR, **((cls.controlled or {}) if form == "controlled" else {}), "silent": False}
    before = build_mixer(cls, **settings)
    whole: dict[str, Any] = {} if cls is GatedAttention else {"rope_fraction": 1.0}
    after = build_mixer(cls, **{**settings, "kv_heads": HEADS, **whole})
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(one, other)
    x = drawn(generator, 9)
    states = [mixer.init_state(B, capacity=9) for mixer in (before, after)]
    assert before(x).y.abs().max() > 0
    assert torch.equal(before(x).y, after(x).y)
    assert torch.equal(before(x, states[0]).y, after(x, states[1]).y)
    assert torch.equal(before.decode(x, states[0]).y, after.decode(x, states[1]).y)


@torch.no_grad()
def test_shared_keys_are_keys_of_several_heads_that_are_alike(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    shared = randomise(build_mixer(Attention, **FOUR, kv_heads=2))
    apart = build_mixer(Attention, **FOUR)
    q, k, v = shared.project.linear.weight.split([D, D // 2, D // 2])
    k, v = (w.unflatten(0, (2, HEAD)).repeat_interleave(2, dim=0).flatten(0, 1) for w in (k, v))
    apart.project.linear.weight.copy_(torch.cat([q, k, v]))
    apart.readout.load_state_dict(shared.readout.state_dict())
    x = drawn(generator, 70)
    assert relative_error(shared(x).y, apart(x).y) < 1e-12
    assert 2 * shared.state_floats(70).cache == apart.state_floats(70).cache


@torch.no_grad()
def test_an_open_gate_is_no_gate_and_one_of_zero_halves(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    gated = randomise(build_mixer(GatedAttention, **FOUR))
    plain = build_mixer(Attention, **FOUR, qk_norm="rms", rope_fraction=0.25)
    held = {name: value for name, value in gated.state_dict().items() if "gate" not in name}
    for name in ("q", "k"):
        held[f"project.{name}_norm.weight"] = 1 + held[f"project.{name}_norm.weight"]
    plain.load_state_dict(held)
    x = drawn(generator, 40)
    gated.readout.gate.weight.zero_()
    assert relative_error(2 * gated(x).y, plain(x).y) < 1e-12
    ones = torch.cat([x[..., :-1], torch.ones_like(x[..., :1])], dim=-1)
    gated.readout.gate.weight[:, -1] = 1e3
    assert relative_error(gated(ones).y, plain(ones).y) < 1e-12


def test_new_settings_leave_identities_as_they_were() -> None:
    for cls in (Attention, FoX):
        assert not {"kv_heads", "rope_fraction"} & cls.Settings().identity().keys()
        assert cls.Settings(kv_heads=1).identity()["kv_heads"] == 1
    first, second = (
        plan("mqar/quick", [model], device="cpu")[0].id for model in ("attention", "attention[kv_heads=null]")
    )
    assert first == second


def test_a_centred_norm_has_weight_decay_and_a_plain_one_none() -> None:
    io = plan("mqar/quick", ["attention"], device="cpu")[0].task.io
    layers = [
        Layer(GatedAttention, GatedAttention.Settings()),
        Layer(Attention, Attention.Settings(qk_norm="rms")),
    ]
    rules = Backbone(BackboneSettings(), layers, io, seed=0).parameter_rules()
    assert rules["mixers.0.project.q_norm.weight"].decay is True
    assert rules["mixers.1.project.q_norm.weight"].decay is None


@pytest.mark.parametrize("settings", [{"heads": 4, "kv_heads": 3}, {"heads": 2, "kv_heads": 4}])
def test_keys_that_cannot_be_shared_are_refused(
    settings: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        build_mixer(Attention, **settings)
    assert str(refused.value) == snapshot


@pytest.mark.parametrize(
    ("heads", "fraction", "dims"), [(2, 0.25, 2), (2, 0.3, 4), (4, 0.25, 2), (2, 1.0, 8)]
)
def test_the_rotated_share_is_rounded_up_to_pairs(heads: int, fraction: float, dims: int) -> None:
    assert build_mixer(Attention, heads=heads, rope_fraction=fraction).turned == dims
    odd = {"heads": 1, "head_dim": 5}
    assert build_mixer(Attention, LayerInfo(0, 1, 5), **odd, rope_fraction=0.5).turned == 4
    with pytest.raises(UserError):
        build_mixer(Attention, LayerInfo(0, 1, 5), **odd)

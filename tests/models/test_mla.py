"""MLA by hand, in its two ways of reading a cache, and where it is attention."""

import math
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.attention import Attention
from linbench.models.mla import MLA
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

LENGTHS = pytest.mark.parametrize("length", [1, 63, 65, 100])
FORMS: dict[str, dict[str, Any]] = {
    "rotated": {},
    "not rotated": {"positions": "none", "latent": 5, "rope_dim": 3},
    "nothing shared": {"rope_dim": 0},
    "queries of low rank": {"q_rank": 6, "expand_v": 0.5},
    "a window": {"window": 40},
    "controlled": dict(MLA.controlled or {}),
}
each_form = pytest.mark.parametrize("form", FORMS)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(x: Tensor, position: int) -> Tensor:
    pairs = torch.view_as_complex(torch.stack(x.chunk(2, dim=-1), dim=-1))
    half = x.shape[-1] // 2
    angles = torch.tensor([position * 10_000 ** (-i / half) for i in range(half)], dtype=torch.float64)
    return torch.cat(
        [*torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).unbind(-1)], -1
    )


def filtered(x: Tensor, weight: Tensor) -> Tensor:
    taps = len(weight)
    padded = torch.cat([torch.zeros_like(x[:, :1]).expand(-1, taps - 1, -1), x], dim=1)
    y = sum(weight[i] * padded[:, i : i + x.shape[1]] for i in range(taps))
    return torch.nn.functional.silu(y)


def by_hand(mixer: Any, x: Tensor) -> Tensor:
    """The layer token by token and head by head, with keys and values of every head."""
    s, weights = mixer.settings, dict(mixer.named_parameters())
    shared, latent, head = mixer.project.shared, mixer.project.latent, D // HEADS
    if s.q_rank is None:
        q = x @ weights["project.queries.weight"].T
    else:
        low = rms(x @ weights["project.queries.down.weight"].T, weights["project.queries.activation.weight"])
        q = low @ weights["project.queries.up.weight"].T
    kept = x @ weights["project.down.weight"].T
    if s.conv:
        both = filtered(torch.cat([q, kept], dim=-1), weights["project.conv.weight"])
        q, kept = both.split([q.shape[-1], kept.shape[-1]], dim=-1)
    q = q.unflatten(-1, (HEADS, -1))
    scale = torch.full((HEADS,), 1 / math.sqrt(shared + head), dtype=x.dtype)
    if s.qk_norm == "l2":
        q, scale = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt(), weights["scale"]
    p, c = kept.split([shared, latent], dim=-1)
    made = (rms(c, weights["project.norm.weight"]) @ weights["project.up.weight"].T).unflatten(
        -1, (HEADS, -1)
    )
    k, v = made[..., :head], made[..., head:]
    if s.positions == "rope" and shared:
        p = torch.stack([turned(p[:, t], t) for t in range(x.shape[1])], dim=1)
        first = torch.stack([turned(q[:, t, :, :shared], t) for t in range(x.shape[1])], dim=1)
        q = torch.cat([first, q[..., shared:]], dim=-1)
    rows = []
    for t in range(x.shape[1]):
        start = 0 if s.window is None else max(0, t + 1 - s.window)
        heads = []
        for h in range(HEADS):
            keys = torch.cat([p[:, start : t + 1], k[:, start : t + 1, h]], dim=-1)
            weight = (scale[h] * (keys @ q[:, t, h, :, None])[..., 0]).softmax(dim=1)
            o = (weight[..., None] * v[:, start : t + 1, h]).sum(dim=1)
            heads.append(rms(o, weights["readout.norm.weight"]) if s.output_norm == "rms" else o)
        rows.append(torch.cat(heads, dim=-1) @ weights["readout.linear.weight"].T)
    return torch.stack(rows, dim=1)


def drawn(generator: torch.Generator, length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


@each_form
@LENGTHS
def test_outputs_and_gradients_are_those_of_the_loop_in_both_ways(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str, length: int
) -> None:
    """Keys of heads are made from the start; after a state latents are read."""
    mixer = randomise(build_mixer(MLA, **FORMS[form]))
    x = drawn(generator, length).requires_grad_()
    wanted = [x, *mixer.parameters()]
    expected = by_hand(mixer, x)
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
    by_loop = torch.autograd.grad((expected * weight).sum(), wanted)
    for y in (mixer(x).y, mixer(x, mixer.init_state(B, capacity=length)).y):
        assert relative_error(y, expected) < 1e-12
        found = torch.autograd.grad((y * weight).sum(), wanted)
        for one, other in zip(found, by_loop, strict=True):
            assert (one - other).abs().max() <= 1e-10 * max(1.0, float(other.abs().max()))


@each_form
@torch.no_grad()
def test_the_state_is_the_latent_and_the_shared_dimensions(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str
) -> None:
    mixer, x = randomise(build_mixer(MLA, **FORMS[form])), drawn(generator, 30)
    state = mixer.prefill(x[:, :20], capacity=30).state
    kept = x[:, :20] @ mixer.project.down.weight.T
    if not mixer.settings.conv:
        latents = rms(kept[..., mixer.project.shared :], mixer.project.norm.weight)
        assert relative_error(state.keys[:, 0, :20, mixer.project.shared :], latents) < 1e-12
    per_token = mixer.project.shared + mixer.project.latent
    assert state.keys[0].numel() + state.values[0].numel() == 30 * per_token
    assert mixer.state_floats(30).cache == 30 * per_token
    parts = []
    for token in x[:, 20:].split(1, dim=1):
        y, state, _ = mixer.decode(token, state)
        parts.append(y)
    assert relative_error(torch.cat(parts, dim=1), by_hand(mixer, x)[:, 20:]) < 1e-12


@LENGTHS
@torch.no_grad()
def test_with_identity_maps_it_is_attention(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, length: int
) -> None:
    """A latent that is the input itself, whose norm changes nothing, and nothing shared."""
    plain = randomise(build_mixer(Attention, positions="none"))
    mixer = build_mixer(MLA, positions="none", latent=D, rope_dim=0)
    q, k, v = plain.project.linear.weight.split(D)
    mixer.project.queries.weight.copy_(q)
    mixer.project.down.weight.copy_(torch.eye(D))
    k, v = (w.unflatten(0, (HEADS, -1)) for w in (k, v))
    mixer.project.up.weight.copy_(torch.cat([k, v], dim=1).flatten(0, 1))
    mixer.readout.load_state_dict(plain.readout.state_dict())
    x = drawn(generator, length)
    x = x * ((1 - 1e-5) / x.square().mean(dim=-1, keepdim=True)).sqrt()
    assert plain(x).y.abs().mean() > 1e-3
    assert relative_error(mixer(x).y, plain(x).y) < 1e-12
    assert relative_error(mixer(x, mixer.init_state(B, capacity=length)).y, plain(x).y) < 1e-12


def test_widths_for_small_models() -> None:
    project = build_mixer(MLA).project
    assert (project.latent, project.shared, project.head_dim) == (D // 2, 4, D // HEADS)
    assert build_mixer(MLA, heads=4, head_dim=5).project.shared == 4


def test_pairs_that_cannot_be_rotated_are_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        build_mixer(MLA, rope_dim=3)
    assert str(refused.value) == snapshot

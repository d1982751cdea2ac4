"""Variants of attention with scores of their own, beside their equations."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.rotary import angles, rotate
from linbench.models.attention import Attention
from linbench.models.blocks.heads import share_input
from linbench.models.cope import CoPE
from linbench.models.delta_positions import DeltaPositions
from linbench.models.deltaformer import DeltaFormer
from linbench.models.fox import FoX
from linbench.models.path import PaTH
from linbench.models.path_fox import PaTHFoX
from linbench.models.stick_breaking import StickBreaking
from tests.helpers.equations import LENGTHS, assert_is_its_equation
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer, in_form, scales, tokens

lengths = pytest.mark.parametrize("length", LENGTHS)
forms = pytest.mark.parametrize("form", ["native", "controlled"])


@lengths
@forms
def test_stick_breaking_is_its_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str
) -> None:
    def loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Go over the keys from the left: each fades what came before it by what it takes."""
        q, k, v, _ = mixer.project(x, None)
        rows = []
        for t in range(x.shape[1]):
            o = torch.zeros_like(v[:, 0])
            for s in range(t):
                take = torch.sigmoid(scales(mixer) * (q[:, t] * k[:, s]).sum(-1))[..., None]
                o = (1 - take) * o + take * v[:, s]
            rows.append(o)
        return torch.stack(rows, dim=1), k, v

    assert_is_its_equation(randomise(in_form(StickBreaking, form)), tokens(length, generator), loop)


@lengths
@forms
def test_cope_is_its_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str
) -> None:
    def loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _ = mixer.project(x, None)
        last = len(mixer.table) - 1
        rows = []
        for t in range(x.shape[1]):
            position = torch.zeros(B, HEADS, dtype=torch.float64)
            logits = []
            for s in reversed(range(t + 1)):
                match = scales(mixer) * (q[:, t] * k[:, s]).sum(-1)
                position = (position + torch.sigmoid(match)).clamp(max=last)
                below, above = position.floor(), position.ceil()
                start, end = mixer.table[below.long()], mixer.table[above.long()]
                e = start + (position - below)[..., None] * (end - start)
                logits.append(match + scales(mixer) * (q[:, t] * e).sum(-1))
            weights = torch.stack(logits[::-1], dim=1).softmax(dim=1)
            rows.append((weights[..., None] * v[:, : t + 1]).sum(dim=1))
        return torch.stack(rows, dim=1), k, v

    mixer = randomise(in_form(CoPE, form, n_pos=12))
    assert_is_its_equation(mixer, tokens(length, generator), loop)


@torch.no_grad()
def test_fresh_cope_is_attention_without_positions(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, cope, plain = tokens(30, generator), build_mixer(CoPE), build_mixer(Attention, positions="none")
    assert cope.table.shape == (64, D // HEADS)
    table = torch.randn_like(cope.table)
    assert not cope.table.any()
    randomise(cope)
    cope.table.zero_()
    assert plain.load_state_dict(cope.state_dict(), strict=False).unexpected_keys == ["table"]
    expected = plain(x).y
    assert relative_error(cope(x).y, expected) < 1e-12
    cope.table.copy_(table)
    assert relative_error(cope(x).y, expected) > 1e-3


def directions(mixer: Any, x: Tensor, eps: float = 1e-6) -> Tensor:
    """w [B, T, H, K]: a map of low rank, a causal filter over three tokens, SiLU, and length one."""
    w = x @ mixer.directions.project.down.weight.T @ mixer.directions.project.up.weight.T
    taps = mixer.directions.conv.weight
    shifted = [F.pad(w, (0, 0, n, 0))[:, : x.shape[1]] for n in reversed(range(len(taps)))]
    w = F.silu(sum(tap * each for tap, each in zip(taps, shifted, strict=True)))
    w = w.unflatten(-1, (HEADS, -1))
    return w / (w.square().sum(dim=-1, keepdim=True) + eps).sqrt()


def path_loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each token first reflects all keys before it, then adds its own."""
    q, k, v, _ = mixer.project(x, None)
    w = directions(mixer, x)
    beta = 2 * torch.sigmoid(x @ mixer.strength.weight.T + mixer.strength.bias)
    log_forget = torch.zeros(B, x.shape[1], HEADS, dtype=torch.float64)
    if isinstance(mixer, FoX):
        log_forget = F.logsigmoid(x @ mixer.forget.weight.T + mixer.forget.bias)
    keys, left, rows = k[:, :0], log_forget[:, :0], []
    for t in range(x.shape[1]):
        along = (keys * w[:, t, None]).sum(dim=-1, keepdim=True)
        keys = torch.cat([keys - beta[:, t, None, :, None] * along * w[:, t, None], k[:, t, None]], dim=1)
        left = torch.cat([left + log_forget[:, t, None], torch.zeros_like(log_forget[:, t, None])], dim=1)
        logits = scales(mixer) * (q[:, t, None] * keys).sum(dim=-1) + left
        rows.append((logits.softmax(dim=1)[..., None] * v[:, : t + 1]).sum(dim=1))
    return torch.stack(rows, dim=1), keys, v


@lengths
@forms
@pytest.mark.parametrize("cls", [PaTH, PaTHFoX])
def test_path_is_its_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str, cls: type[PaTH]
) -> None:
    mixer = randomise(in_form(cls, form, rank=5))
    assert_is_its_equation(mixer, tokens(length, generator), path_loop, limit=1e-8)


@torch.no_grad()
def test_reflections_start_as_projections_and_keep_float32(generator: torch.Generator) -> None:
    mixer, x = build_mixer(PaTH), tokens(9, generator)
    given = share_input(x, mixer, mixer.readout)
    assert mixer.strength(given).sub(1).abs().max() < 0.2
    w, _ = mixer.directions(given, None)
    torch.testing.assert_close(
        w.norm(dim=-1), torch.ones(B, 9, HEADS, dtype=torch.float64), rtol=0, atol=1e-2
    )
    mixer = mixer.bfloat16()
    state = mixer.init_state(B, capacity=9)
    assert (state.keys.dtype, state.values.dtype) == (torch.float32, torch.bfloat16)
    for part in x.bfloat16().split([4, 1, 1, 3], dim=1):
        y, state, _ = mixer.decode(part, state)
        assert (y.dtype, state.keys.dtype, state.values.dtype) == (
            torch.bfloat16,
            torch.float32,
            torch.bfloat16,
        )


@torch.no_grad()
def test_path_that_reflects_nothing_is_attention_without_positions(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x = tokens(70, generator)
    for cls, host in ((PaTH, Attention), (PaTHFoX, FoX)):
        mixer, plain = randomise(build_mixer(cls)), build_mixer(host, positions="none")
        missing, extra = plain.load_state_dict(mixer.state_dict(), strict=False)
        assert not missing
        assert {name.partition(".")[0] for name in extra} == {"directions", "strength"}
        expected = plain(x).y
        assert relative_error(mixer(x).y, expected) > 1e-3
        mixer.strength.weight.zero_()
        mixer.strength.bias.fill_(-math.inf)
        assert relative_error(mixer(x).y, expected) < 1e-12


@torch.no_grad()
def test_path_fox_with_open_gates_is_path(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, gated, plain = tokens(70, generator), randomise(build_mixer(PaTHFoX)), build_mixer(PaTH)
    missing, extra = plain.load_state_dict(gated.state_dict(), strict=False)
    assert not missing
    assert {*extra} == {"forget.weight", "forget.bias"}
    expected = plain(x).y
    assert relative_error(gated(x).y, expected) > 1e-3
    gated.forget.weight.zero_()
    gated.forget.bias.fill_(math.inf)
    assert relative_error(gated(x).y, expected) < 1e-12


@torch.no_grad()
def test_a_long_stream_of_reflections_in_float32_stays_what_the_whole_is(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    mixer = randomise(build_mixer(PaTH)).float()
    x = torch.randn(1, 400, D, generator=generator)
    state, parts = mixer.init_state(1, capacity=400), []
    for part in x.split(1, dim=1):
        y, state, _ = mixer.decode(part, state)
        parts.append(y)
    assert relative_error(torch.cat(parts, dim=1), mixer.double()(x.double()).y) < 1e-4


@lengths
@forms
@pytest.mark.parametrize("sim", ["kk", "qk"])
def test_deltaformer_is_its_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str, sim: str
) -> None:
    def loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _ = mixer.project(x, None)
        if mixer.settings.positions == "rope":
            cosine, sine = angles(torch.arange(x.shape[1])[None], D // HEADS, torch.float64)
            q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        beta = torch.sigmoid(x @ mixer.beta.weight.T + mixer.beta.bias)

        def weigh(asked: Tensor, keys: Tensor) -> Tensor:
            return (scales(mixer) * (asked[:, None] * keys).sum(dim=-1)).softmax(dim=1)[..., None]

        u, rows = v[:, :1], []
        for t in range(x.shape[1]):
            if t:
                known = (weigh((q if sim == "qk" else k)[:, t], k[:, :t]) * u).sum(dim=1)
                u = torch.cat([u, (v[:, t] - beta[:, t, :, None] * known)[:, None]], dim=1)
            rows.append((weigh(q[:, t], k[:, : t + 1]) * u).sum(dim=1))
        return torch.stack(rows, dim=1), k, u

    mixer = randomise(in_form(DeltaFormer, form, sim=sim))
    assert_is_its_equation(mixer, tokens(length, generator), loop)


@torch.no_grad()
def test_deltaformer_that_corrects_nothing_is_attention(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, mixer, plain = tokens(70, generator), randomise(build_mixer(DeltaFormer)), build_mixer(Attention)
    assert plain.load_state_dict(mixer.state_dict(), strict=False).unexpected_keys == [
        "beta.weight",
        "beta.bias",
    ]
    expected, whole = plain(x).y, build_mixer(DeltaFormer, strength="one")
    whole.load_state_dict(plain.state_dict())
    assert relative_error(mixer(x).y, expected) > 1e-3
    mixer.beta.weight.zero_()
    mixer.beta.bias.fill_(-math.inf)
    assert relative_error(mixer(x).y, expected) < 1e-12
    mixer.beta.bias.fill_(math.inf)
    assert relative_error(mixer(x).y, whole(x).y) < 1e-12


@lengths
@forms
@pytest.mark.parametrize("strength", ["two", "learned"])
def test_delta_positions_are_their_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str, strength: str
) -> None:
    def loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _ = mixer.project(x, None)
        w = directions(mixer, x, eps=1e-12)
        beta = torch.full(w.shape[:3], 2.0, dtype=torch.float64)
        if strength == "learned":
            beta = 2 * torch.sigmoid(x @ mixer.beta.weight.T + mixer.beta.bias)
        R = torch.eye(D // HEADS, dtype=torch.float64).expand(B, HEADS, -1, -1)
        left, keys, rows = torch.eye(D // HEADS, dtype=torch.float64), k[:, :0], []
        for t in range(x.shape[1]):
            along = w[:, t, :, :, None]
            R = (left - beta[:, t, :, None, None] * along @ along.mT) @ R
            query = (R.mT @ q[:, t, :, :, None])[..., 0]
            keys = torch.cat([keys, (R.mT @ k[:, t, :, :, None])[:, None, ..., 0]], dim=1)
            logits = scales(mixer) * (query[:, None] * keys).sum(dim=-1)
            rows.append((logits.softmax(dim=1)[..., None] * v[:, : t + 1]).sum(dim=1))
        with torch.no_grad():  # the matrix of a state holds what is missing to no reflection at all
            state = mixer.prefill(x, capacity=x.shape[1]).state
            torch.testing.assert_close(state.memory, left - R, rtol=0, atol=1e-10)
        return torch.stack(rows, dim=1), keys, v

    mixer = randomise(in_form(DeltaPositions, form, rank=5, strength=strength))
    assert_is_its_equation(mixer, tokens(length, generator), loop, limit=1e-8)


@torch.no_grad()
def test_delta_positions_that_reflect_in_full_are_path(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, path = tokens(100, generator), randomise(build_mixer(PaTH))
    whole, learned = (build_mixer(DeltaPositions, strength=strength) for strength in ("two", "learned"))
    whole.load_state_dict({n: p for n, p in path.state_dict().items() if not n.startswith("strength")})
    names = {n: n.replace("strength.", "beta.") for n in path.state_dict()}
    path.strength.weight.zero_()
    for bias, same in ((math.inf, True), (0.0, False), (-math.inf, True)):
        path.strength.bias.fill_(bias)
        path.directions.eps = 1e-12
        learned.load_state_dict({names[n]: p for n, p in path.state_dict().items()})
        # with beta = 1 keys lose for good what PaTH's keys lose on the way only
        assert (relative_error(learned(x).y, path(x).y) < 1e-6) == same
        assert (relative_error(whole(x).y, path(x).y) < 1e-6) == (bias == math.inf)


@torch.no_grad()
def test_delta_positions_that_reflect_nothing_are_attention_without_positions(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, mixer = tokens(70, generator), randomise(build_mixer(DeltaPositions, strength="learned"))
    plain = build_mixer(Attention, positions="none")
    missing, extra = plain.load_state_dict(mixer.state_dict(), strict=False)
    assert not missing
    assert {name.partition(".")[0] for name in extra} == {"directions", "beta"}
    expected = plain(x).y
    assert relative_error(mixer(x).y, expected) > 1e-3
    mixer.beta.weight.zero_()
    mixer.beta.bias.fill_(-math.inf)
    assert relative_error(mixer(x).y, expected) < 1e-12


@torch.no_grad()
def test_full_reflections_keep_lengths_and_forget_where_the_sequence_began(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, mixer = tokens(200, generator), randomise(build_mixer(DeltaPositions))
    given = share_input(x, mixer, mixer.readout)
    q, k, _, _ = mixer.project(given, None)
    made = mixer._project_tokens(x, None)
    for before, after in ((q, made.q), (k, made.k)):
        torch.testing.assert_close(after.norm(dim=-1), before.norm(dim=-1), rtol=1e-6, atol=0)
    # scores of two tokens do not depend on what came before both, but for three tokens of convolution
    later = mixer._project_tokens(x[:, 100:], None)
    one, other = (torch.einsum("bthk,bshk->bhts", part.q[:, -90:], part.k[:, -90:]) for part in (made, later))
    assert relative_error(one, other) < 1e-6

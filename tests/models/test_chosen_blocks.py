"""MoBA and NSA, in which a query chooses blocks of tokens, beside their equations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.rotary import angles, rotate
from linbench.models.attention import Attention
from linbench.models.moba import MoBA
from linbench.models.nsa import NSA
from tests.helpers.cells import plan
from tests.helpers.equations import LENGTHS, assert_is_its_equation
from tests.helpers.models import HEADS, D, Error, Randomise, build_mixer, in_form, scales, streamed, tokens

HEAD = D // HEADS
lengths = pytest.mark.parametrize("length", LENGTHS)
forms = pytest.mark.parametrize("form", ["native", "controlled"])
shared = pytest.mark.parametrize("kv_heads", [1, HEADS])
SMALL: dict[type[Attention], dict[str, int]] = {
    MoBA: {"block": 5, "blocks": 3},
    NSA: {"block": 5, "blocks": 4, "near": 7},
}
each = pytest.mark.parametrize("cls", SMALL)


def made(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [B, T, H or Hk, K] after positions."""
    q, k, v, _ = mixer.project(x, None)
    if mixer.settings.positions == "rope":
        cosine, sine = angles(torch.arange(x.shape[1])[None], HEAD, torch.float64)
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
    return q, k, v


def attend(mixer: Any, q: Tensor, k: Tensor, v: Tensor, head: int) -> Tensor:
    """Return the mean of v [S, V], weighted by a softmax of the query q [K] of a head over k [S, K]."""
    return (scales(mixer)[head] * k @ q).softmax(dim=0) @ v


def positions_of(chosen: set[int], block: int, t: int) -> list[int]:
    return [s for s in range(t + 1) if s // block in chosen]


def best(scores: dict[int, float], count: int) -> set[int]:
    return {*sorted(scores, key=scores.__getitem__, reverse=True)[:count]}


def by_head(o: list[list[list[Tensor]]]) -> Tensor:
    return torch.stack([torch.stack([torch.stack(heads) for heads in row]) for row in o])


@lengths
@forms
@shared
def test_moba_is_its_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str, kv_heads: int
) -> None:
    def loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = made(mixer, x)
        b, count = mixer.settings.block, mixer.settings.blocks

        def one(row: int, t: int, head: int) -> Tensor:
            query, kv = q[row, t, head], head * kv_heads // HEADS
            keys, values = k[row, :, kv], v[row, :, kv]
            match = {c: (query @ keys[c * b : (c + 1) * b].mean(dim=0)).item() for c in range(t // b)}
            read = positions_of(best(match, count - 1) | {t // b}, b, t)
            return attend(mixer, query, keys[read], values[read], head)

        o = [[[one(i, t, h) for h in range(HEADS)] for t in range(length)] for i in range(len(x))]
        return by_head(o), k, v

    mixer = randomise(in_form(MoBA, form, **SMALL[MoBA], kv_heads=kv_heads))
    assert_is_its_equation(mixer, tokens(length, generator), loop)


@lengths
@forms
@shared
def test_nsa_is_its_equation(
    randomise: Randomise, generator: torch.Generator, length: int, form: str, kv_heads: int
) -> None:
    def loop(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = made(mixer, x)
        s = mixer.settings
        gates = torch.sigmoid(x @ mixer.gate.weight.T).unflatten(-1, (HEADS, 3))

        def group(row: int, t: int, kv: int) -> list[Tensor]:
            """The outputs of the heads that share keys."""
            keys, values, own = k[row, :, kv], v[row, :, kv], t // s.block
            heads = range(kv * HEADS // kv_heads, (kv + 1) * HEADS // kv_heads)
            whole = [slice(c * s.block, (c + 1) * s.block) for c in range((t + 1) // s.block)]
            shares, outputs = torch.zeros(own + 1, dtype=torch.float64), []
            for h in heads:
                g = gates[row, t, h]
                near = slice(max(0, t + 1 - s.near), t + 1)
                o = g[2] * attend(mixer, q[row, t, h], keys[near], values[near], h)
                if whole:
                    mean_keys, mean_values = (
                        torch.stack([x[c].mean(dim=0) for c in whole]) for x in (keys, values)
                    )
                    p = (scales(mixer)[h] * mean_keys @ q[row, t, h]).softmax(dim=0)
                    o = o + g[0] * p @ mean_values
                    shares[: len(whole)] += p.detach()
                outputs.append(o)
            forced = {0, own, max(own - 1, 0)}
            free = {c: float(shares[c]) for c in range(own + 1) if c not in forced}
            read = positions_of(best(free, s.blocks - len(forced)) | forced, s.block, t)
            return [
                o + gates[row, t, h, 1] * attend(mixer, q[row, t, h], keys[read], values[read], h)
                for o, h in zip(outputs, heads, strict=True)
            ]

        o = [
            [[one for kv in range(kv_heads) for one in group(i, t, kv)] for t in range(length)]
            for i in range(len(x))
        ]
        return by_head(o), k, v

    mixer = randomise(in_form(NSA, form, **SMALL[NSA], kv_heads=kv_heads))
    assert_is_its_equation(mixer, tokens(length, generator), loop)


@each
@forms
@shared
@torch.no_grad()
def test_moba_and_nsa_stream_from_within_blocks(
    randomise: Randomise,
    relative_error: Error,
    generator: torch.Generator,
    cls: type[Attention],
    form: str,
    kv_heads: int,
) -> None:
    mixer, x = randomise(in_form(cls, form, **SMALL[cls], kv_heads=kv_heads)), tokens(100, generator)
    whole = mixer(x).y
    for prompt in (33, 64, 65):
        for y in streamed(mixer, x, prompt=prompt):
            assert relative_error(y, whole) < 1e-9
    state = mixer.init_state(len(x), capacity=130)  # more places than tokens
    parts = []
    for part in x.split([3, 1, 1, 30, 65], dim=1):
        y, state, _ = mixer.decode(part, state)
        parts.append(y)
    assert relative_error(torch.cat(parts, dim=1), whole) < 1e-9
    assert state.keys.shape[2] == 130  # a window cuts nothing


@torch.no_grad()
def test_moba_that_reads_all_blocks_is_attention(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, plain = tokens(70, generator), randomise(build_mixer(Attention))
    expected = plain(x).y
    for settings, same in (
        ({}, True),
        ({"block": 70, "blocks": 1}, True),
        ({"block": 10, "blocks": 7}, True),
        ({"block": 10, "blocks": 6}, False),
        ({"block": 69, "blocks": 1}, False),
    ):
        mixer = build_mixer(MoBA, **settings)
        mixer.load_state_dict(plain.state_dict())
        assert (relative_error(mixer(x).y, expected) < 1e-12) == same, settings


@torch.no_grad()
def test_nsa_with_one_gate_open_is_attention(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    x, plain = tokens(70, generator), randomise(build_mixer(Attention))
    x[..., 0] = 1.0  # by which a gate's map can open it whatever the others are
    for branch, settings, window, same in (
        (1, {"block": 10, "blocks": 7, "near": 1}, None, True),
        (1, {"block": 70, "blocks": 3, "near": 1}, None, True),
        (1, {"block": 10, "blocks": 6, "near": 70}, None, False),
        (2, {"block": 10, "blocks": 3, "near": 70}, None, True),
        (2, {"block": 10, "blocks": 7, "near": 69}, None, False),
        (2, {"block": 10, "blocks": 3, "near": 9}, 9, True),
        (0, {"block": 10, "blocks": 7, "near": 70}, None, False),
        (0, {"block": 1, "blocks": 3, "near": 1}, None, True),
    ):
        mixer, whole = build_mixer(NSA, **settings), build_mixer(Attention, window=window)
        missing, extra = mixer.load_state_dict(plain.state_dict(), strict=False)
        assert (missing, extra) == (["gate.weight"], [])
        mixer.gate.weight.zero_()
        mixer.gate.weight.view(HEADS, 3, D)[..., 0] = -math.inf
        mixer.gate.weight.view(HEADS, 3, D)[:, branch, 0] = math.inf
        mixer.gate.weight.nan_to_num_(posinf=1e3, neginf=-1e3)
        whole.load_state_dict(plain.state_dict())
        assert (relative_error(mixer(x).y, whole(x).y) < 1e-12) == same, (branch, settings)


@each
def test_moba_and_nsa_have_defaults_as_published_and_small_ones_in_the_controlled_form(
    cls: type[Attention],
) -> None:
    near = {"near": 512} if cls is NSA else {}
    published = cls.Settings().model_dump()
    sizes = {MoBA: {"block": 256, "blocks": 4}, NSA: {"block": 64, "blocks": 16, **near}}[cls]
    assert published.items() >= {**sizes, "positions": "rope", "window": None}.items()
    small = {"block": 16, "blocks": 4, **({"near": 32} if near else {})}
    assert (cls.controlled or {}).items() >= {**small, "positions": "none", "conv": 4}.items()
    (cell,) = plan("mqar/quick", [f"{cls.name}[blocks=5]"], device="cpu", form="controlled")
    found = cell.model.layers[0].settings.model_dump()
    assert found.items() >= {**small, "blocks": 5}.items()


@pytest.mark.parametrize(
    ("cls", "settings", "expected"),
    [
        # 16 keys of blocks of 4: one's own up to the token, one other from the fifth on; 0 to 3 means
        (MoBA, {"block": 4, "blocks": 2}, 2 * HEADS * 2 * HEAD * (2.5 + 3.0) + 2 * HEADS * HEAD * 1.5 + D),
        # up to two others, a window of up to three; a mean more for the last token of each block
        (
            NSA,
            {"block": 4, "blocks": 3, "near": 3},
            2 * HEADS * 2 * HEAD * ((2.5 + 5.0) + 1.75 + 45 / 16) + 2 * D + 5 * D,
        ),
    ],
)
def test_operations_of_moba_and_nsa_by_hand(
    cls: type[Attention], settings: dict[str, int], expected: float
) -> None:
    assert build_mixer(cls, **settings).recurrence_flops(16) == pytest.approx(expected)

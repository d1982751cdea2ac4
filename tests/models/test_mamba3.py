"""Mamba-3: a loop of its complex recurrence, Mamba-2 without its changes, and how it starts."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.heads import share_input
from linbench.models.mamba2 import Mamba2
from linbench.models.mamba3 import Mamba3, Mamba3State
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

SETTINGS: dict[str, dict[str, Any]] = {
    "published": {},
    "three ranks": {"rank": 3, "groups": 2, "rope_fraction": 1.0},
    "controlled with two ranks": {**(Mamba3.controlled or {}), "rank": 2},
    "two ranks without a trapezoid": {"rank": 2, "trapezoid": False, "skip": False},
    "fixed rotation": {"rotation": "fixed", "expand_k": 0.5},
    "no rotation": {"rotation": "none", "output_norm": "rms"},
}


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, 65, D, dtype=torch.float64, generator=generator)


def tokens(length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(length))


def made(mixer: Mamba3, x: Tensor) -> tuple[Tensor, Mamba3State]:
    given = share_input(x, mixer, mixer.readout)
    return mixer.recur(given, *mixer.project(given, None)[:3], None)


def in_modes(x: Tensor, pairs: int) -> Tensor:
    """Complex numbers of channels [..., K]: one of each turned pair, then the others, which are real."""
    turned, rest = x[..., : 2 * pairs].unflatten(-1, (2, pairs)), x[..., 2 * pairs :]
    modes = torch.complex(turned[..., 0, :], turned[..., 1, :])
    return torch.cat([modes, torch.complex(rest, torch.zeros_like(rest))], dim=-1)


def looped(mixer: Mamba3, x: Tensor) -> tuple[Tensor, Mamba3State]:
    """Outputs [B, T, R, H, V] and what is remembered, token by token, in complex numbers.

    h_t = e^{(A - i w) d} (h_{t-1} + (1 - l) d b_{t-1} x_{t-1}) + l d b_t x_t, and y_t = Re(conj(c_t) h_t).
    """
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    s, pairs = mixer.settings, mixer.pairs
    d = F.softplus(x @ mixer.decay.project.weight.T + mixer.decay.dt_bias)
    A = -F.softplus(x @ mixer.decay.rate.weight.T)
    l = torch.sigmoid(x @ mixer.share.weight.T) if s.trapezoid else torch.ones_like(d)  # noqa: E741
    if s.rotation == "token":
        wd = d[..., None] * math.pi * torch.tanh(x @ mixer.turn.weight.T)[:, :, None]
    else:
        wd = (10_000.0 ** (-torch.arange(pairs) / max(pairs, 1))).double().expand(*d.shape, pairs)
    wd = F.pad(wd, (0, q.shape[-1] - 2 * pairs))
    inputs = v[:, :, None] * (1.0 if mixer.inputs is None else mixer.inputs)
    c, b = (
        part.view(*x.shape[:2], -1, s.rank, part.shape[-1]).repeat_interleave(HEADS // mixer.key_heads, dim=2)
        for part in (q, k)
    )
    if mixer.biases is not None:
        c, b = c + mixer.biases[0], b + mixer.biases[1]
    c, b = in_modes(c, pairs), in_modes(b, pairs)
    h = torch.zeros(B, HEADS, c.shape[-1], v.shape[-1], dtype=torch.complex128)
    last, outputs = torch.zeros_like(h), []
    for t in range(x.shape[1]):
        write = torch.einsum("bhrn,brhv->bhnv", b[:, t], inputs[:, t].to(b.dtype))
        factor = torch.exp(torch.complex(A * d, torch.zeros_like(d))[:, t, :, None] - 1j * wd[:, t])
        rest, own = ((1 - l) * d)[:, t, :, None, None], (l * d)[:, t, :, None, None]
        h, last = factor[..., None] * (h + rest * last) + own * write, write
        outputs.append(torch.einsum("bhrn,bhnv->brhv", c[:, t].conj(), h).real)
    o = torch.stack(outputs, dim=1)
    o = o if mixer.skip is None else o + mixer.skip[:, None] * inputs
    # the layer keeps its state turned by all angles so far
    angle = wd.sum(dim=1)
    h, key = torch.exp(1j * angle)[..., None] * h, torch.exp(1j * angle)[:, :, None] * b[:, -1]
    memory, key = (in_channels(part, pairs, dim) for part, dim in ((h, -2), (key, -1)))
    token = (key, v[:, -1]) if s.trapezoid else (None, None)
    return o, Mamba3State(memory, *token, angle[..., :pairs] if pairs else None)


def in_channels(x: Tensor, pairs: int, dim: int) -> Tensor:
    """Undo `in_modes`."""
    turned, rest = x.split([pairs, x.shape[dim] - pairs], dim=dim)
    return torch.cat([turned.real, turned.imag, rest.real], dim=dim)


def numbers(o: Tensor, after: Mamba3State) -> Tensor:
    """All outputs and what is remembered, in one vector; angles by cosine and sine."""
    angle = [] if after.angle is None else [after.angle.cos(), after.angle.sin()]
    return torch.cat([part.flatten() for part in (o, *after[:3], *angle) if part is not None])


@pytest.mark.parametrize(
    ("form", "length"),
    [*((form, 65) for form in SETTINGS), *(("published", length) for length in (1, 63, 100))],
    ids=str,
)
def test_it_is_its_complex_recurrence(
    randomise: Randomise, relative_error: Error, form: str, length: int
) -> None:
    """Outputs, state and gradients."""
    mixer, x, found = randomise(build_mixer(Mamba3, **SETTINGS[form])), tokens(length), []
    for function in (made, looped):
        mixer.zero_grad()
        given = x.clone().requires_grad_()
        o, after = function(mixer, given)
        both = numbers(o.view(B, length, mixer.settings.rank, HEADS, -1), after)
        (both * torch.linspace(-1, 2, len(both), dtype=torch.float64).sin()).sum().backward()
        used = {name: p.grad for name, p in mixer.named_parameters() if not name.startswith("readout")}
        found.append({"numbers": both.detach(), "x": given.grad, **used})
    for name, expected in found[1].items():
        if expected is None or not expected.any():  # of one token alone the state is not turned at all
            assert found[0][name] is None or found[0][name].abs().max() < 1e-12, name
        else:
            assert relative_error(found[0][name], expected) < 1e-8, name


@torch.no_grad()
def test_without_its_changes_it_is_mamba2(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    plain = {"conv": 0, "qk_norm": "none", "output_norm": "none", "groups": 1}
    old = randomise(build_mixer(Mamba2, **plain))
    off: dict[str, Any] = {"trapezoid": False, "rotation": "none", "qk_bias": False}
    for changed in ({"trapezoid": True}, {"rotation": "token"}, {"qk_bias": True}, {}):
        new = randomise(build_mixer(Mamba3, **plain, **{**off, **changed}))
        new.load_state_dict(old.state_dict(), strict=False)
        new.decay.rate.weight.zero_()
        old.decay.A_log.fill_(math.log(math.log(2)))
        error = relative_error(new(x).y, old(x).y)
        assert error > 1e-3 if changed else error < 1e-12


@torch.no_grad()
def test_a_fixed_rotation_is_that_of_rotary_positions(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    plain = {"conv": 0, "output_norm": "none", "qk_norm": "rms"}
    old = randomise(build_mixer(Mamba2, **plain, positions="rope"))
    new = build_mixer(Mamba3, **plain, rotation="fixed", rope_fraction=1.0, trapezoid=False, qk_bias=False)
    assert new.load_state_dict(old.state_dict(), strict=False).missing_keys == ["decay.rate.weight"]
    new.decay.rate.weight.zero_()
    old.decay.A_log.fill_(math.log(math.log(2)))
    assert relative_error(new(x).y, old(x).y) < 1e-10


@torch.no_grad()
def test_ranks_of_which_one_is_left_are_one_rank(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    one, two = randomise(build_mixer(Mamba3)), randomise(build_mixer(Mamba3, rank=2))
    weights, wide = one.state_dict(), two.state_dict()
    for name, value in weights.items():
        if name == "biases":
            wide[name][:, :, :1] = value
        elif name == "project.linear.weight":
            parts = zip(wide[name].split(two.project.widths), value.split(one.project.widths), strict=True)
            for to, given in parts:
                to[: len(given)] = given
        else:
            wide[name].copy_(value)
    for name in ("inputs", "readout.gates", "readout.of_ranks"):
        wide[name][0] = 1
    expected = one(x).y
    for name in ("inputs", "readout.of_ranks"):
        assert relative_error(two(x).y, expected) > 1e-3
        wide[name][1] = 0
    assert relative_error(two(x).y, expected) < 1e-12


@torch.no_grad()
def test_a_state_that_is_turned_by_half_a_circle_tracks_parity() -> None:
    """Each token with a one turns what was written first by pi: its sign is the parity of all ones since."""
    mixer = build_mixer(Mamba3, rope_fraction=1.0, qk_bias=False, qk_norm="none", skip=False, trapezoid=False)
    for part in (mixer.decay.project, mixer.decay.rate, mixer.turn, mixer.project.linear):
        part.weight.zero_()
    mixer.decay.dt_bias.fill_(math.log(math.e - 1))  # a step of one
    mixer.decay.rate.weight[:, 1] = -50  # without decay
    mixer.turn.weight[:, 0] = 50  # by pi where the first channel is one
    queries = mixer.project.widths[0]
    mixer.project.linear.weight[:queries, 1] = 1
    mixer.project.linear.weight[queries:, 2] = 1  # only the first token writes
    bits = torch.randint(2, (300,), generator=torch.Generator().manual_seed(0)).double()
    x = torch.zeros(1, 300, D, dtype=torch.float64)
    x[0, :, 0], x[0, :, 1], x[0, 0, 2], x[0, 0, 0] = bits, 1, 1, 0
    o, _ = made(mixer, x)
    signs = 1 - 2 * (x[0, :, 0].cumsum(dim=0) % 2)
    assert torch.equal(o[0, :, 0, 0].sign(), signs)
    assert o[0, -1, 0, 0].abs() > 0.9 * o[0, 0, 0, 0].abs()


@torch.no_grad()
def test_it_starts_as_published(generator: torch.Generator) -> None:
    mixer = build_mixer(Mamba3, LayerInfo(0, 1, 128), heads=64, rank=4)
    nothing = share_input(torch.zeros(1, 1, 128, dtype=torch.float64), mixer, mixer.readout)
    log_decay, step = mixer.decay.with_step(nothing)
    assert 0.001 <= step.min() < step.max() <= 0.1001
    assert step.median().item() == pytest.approx(0.01, rel=0.3)
    torch.testing.assert_close(log_decay, -math.log(2) * step)
    assert mixer.inputs.unique().tolist() == mixer.readout.of_ranks.unique().tolist() == [0.25]
    for part in (mixer.biases, mixer.skip, mixer.readout.gates):
        assert part.unique().tolist() == [1.0]
    mixer.decay.rate.weight[:, 0] = -50  # A has a least size
    first = torch.zeros(1, 1, 128, dtype=torch.float64)
    first[..., 0] = 1
    log_decay, step = mixer.decay.with_step(share_input(first, mixer, mixer.readout))
    torch.testing.assert_close(log_decay, -1e-4 * step)
    names = ("decay.dt_bias", "biases", "inputs", "skip", "readout.of_ranks", "readout.gates")
    assert mixer.parameter_rules() == dict.fromkeys(names, Rule(decay=False))


@torch.no_grad()
def test_angles_keep_their_digits_in_float32() -> None:
    """Their sum grows to more than 1,000, where the numbers of float32 are 1e-4 apart."""
    mixer = build_mixer(Mamba3).float()
    mixer.decay.dt_bias.fill_(math.log(math.expm1(1.0)))
    mixer.turn.weight[:, 0] = 1
    x = 0.1 * torch.randn(B, 1000, D, generator=torch.Generator().manual_seed(0))
    x[..., 0] = 0.5
    given = share_input(x, mixer, mixer.readout)
    each = mixer.decay.with_step(given)[1][..., None] * math.pi * torch.tanh(mixer.turn(given))[:, :, None]
    total = each.double().sum(dim=1)
    assert total.abs().min() > 1000
    angle = made(mixer, x)[1].angle
    assert angle is not None
    torch.testing.assert_close(angle, total.remainder(2 * math.pi), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"head_dim": 1}, r"model\.rotation = token needs an even head dimension, not 1"),
        ({"head_dim": 3, "rope_fraction": 1.0}, "needs an even head dimension, not 3"),
        ({"groups": 3}, r"model\.groups = 3 does not divide"),
        ({"positions": "rope"}, "positions"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        build_mixer(Mamba3, **settings)

"""ROSA: its equation token by token, copies of any length by maps set by hand, and what it starts as."""

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import Rule
from linbench.models.rosa import ROSA
from tests.helpers.models import B, D, Error, Randomise, build_mixer

BITS = 8


def copier(**settings: object) -> ROSA:
    """Queries, keys and values are the input, and the output is the copy."""
    mixer: ROSA = build_mixer(ROSA, **settings)
    with torch.no_grad():
        for part in (mixer.query, mixer.key, mixer.value, mixer.linear):
            part.weight.copy_(torch.eye(D))
            part.bias.zero_()
    return mixer


def spelt(tokens: Tensor) -> Tensor:
    """Tokens [B, T] below 2^8 as signs of their binary digits, twice over: [B, T, D]."""
    digits = (tokens[..., None] >> torch.arange(BITS)) % 2
    return (2.0 * digits - 1).double().repeat(1, 1, D // BITS)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 2, 63, 65, 100, 200])
def test_it_copies_a_string_of_any_length_without_training(length: int) -> None:
    """Symbols that are all different are copied from the first of the copy on; nothing matches before."""
    tokens = torch.stack([torch.randperm(256, generator=torch.Generator().manual_seed(b)) for b in range(B)])
    x = spelt(tokens[:, :length].repeat(1, 3))
    y, *_ = copier(bits=BITS)(x)
    assert not y[:, :length].any()
    assert torch.equal(y[:, length:-1], x[:, length + 1 :])


@torch.no_grad()
def test_it_copies_a_string_whose_symbols_repeat_once_it_is_known() -> None:
    """After twenty of 500 random ones of four, no other suffix of the string is as long."""
    tokens = torch.randint(0, 4, (1, 500), generator=torch.Generator().manual_seed(0)).repeat(1, 2)
    x = spelt(tokens)
    y, *_ = copier(bits=BITS)(x)
    assert torch.equal(y[:, 520:-1], x[:, 521:])
    assert not torch.equal(y[:, 1:500], x[:, 2:501])


@torch.no_grad()
def test_of_several_places_it_reads_after_the_latest_of_the_longest() -> None:
    x = spelt(torch.tensor([[1, 2, 3, 9, 2, 4, 1, 2, 5, 9, 2, 7, 2]]))
    y, *_ = copier(bits=BITS)(x)
    #                           1  2  3  9  2  4  1  2  5  9  2  7  2
    expected = spelt(torch.tensor([[0, 0, 0, 0, 3, 0, 2, 3, 0, 2, 4, 0, 7]]))
    read = torch.tensor([4, 6, 7, 9, 10, 12])
    assert torch.equal(y[:, read], expected[:, read])
    assert not y[:, [0, 1, 2, 3, 5, 8, 11]].any()


@torch.no_grad()
@pytest.mark.parametrize(
    "settings", [{}, {"bits": 1}, {"conv": 4, "token_shift": False, "output_norm": "rms"}]
)
def test_it_is_its_equation(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, settings: dict[str, object]
) -> None:
    mixer = randomise(build_mixer(ROSA, **settings))
    bits, length = mixer.settings.bits, 40
    x = torch.randn(B, length, D, dtype=torch.float64, generator=generator)
    (q, k, v), _, _ = mixer.project(x, None)
    if mixer.shift is not None:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        q = (x + mixer.shift.mix[0] * (before - x)) @ mixer.query.weight.T + mixer.query.bias
    o = torch.zeros_like(v)
    for b in range(B):
        for c in range(0, D, bits):
            heard, kept = ((each[b, :, c : c + bits] > 0).tolist() for each in (q, k))
            for t in range(length):
                best = (0, -1)
                for j in range(t):
                    same = 0
                    while same <= j and heard[t - same] == kept[j - same]:
                        same += 1
                    best = max(best, (same, j))
                if best[0]:
                    o[b, t, c : c + bits] = torch.where(v[b, best[1] + 1, c : c + bits] > 0, 1.0, -1.0)
    y = mixer.e * o
    y = y if mixer.norm is None else mixer.norm(y)
    expected = y @ mixer.linear.weight.T + mixer.linear.bias
    assert relative_error(mixer(x).y, expected) < 1e-12


def test_it_starts_as_published() -> None:
    mixer = build_mixer(ROSA)
    assert mixer.e.tolist() == [1.0] * D
    assert not mixer.shift.mix.any()
    assert not any(part.any() for part in mixer.linear.parameters())


def test_only_maps_decay() -> None:
    mixer = build_mixer(ROSA, output_norm="rms")
    assert mixer.parameter_rules() == dict.fromkeys(("shift.mix", "e", "norm.weight"), Rule(decay=False))


def test_symbols_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.bits = 3 does not divide d_model = 16"):
        build_mixer(ROSA, bits=3)

"""Variants of attention with scores of their own, beside their equations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.cope import CoPE
from linbench.models.stick_breaking import StickBreaking
from tests.helpers.equations import LENGTHS, assert_is_its_equation
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

lengths = pytest.mark.parametrize("length", LENGTHS)
forms = pytest.mark.parametrize("form", ["native", "controlled"])


def tokens(length: int, generator: torch.Generator) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


def in_form(cls: type[Attention], form: str, **settings: Any) -> Any:
    return build_mixer(cls, **(cls.controlled or {} if form == "controlled" else {}), **settings)


def scales(mixer: Any) -> Tensor:
    """The factor on the scores of each head."""
    constant = torch.full((HEADS,), 1 / math.sqrt(D // HEADS), dtype=torch.float64)
    return constant if mixer.scale is None else mixer.scale


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

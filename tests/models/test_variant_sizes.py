"""Every variant: parameters and state as published, the state in shapes that stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.base import LayerInfo
from tests.models.every_variant import VARIANTS, B, Build, D, Variant, tensors


def held(state: Any, seq_len: int) -> dict[str, int]:
    """Floats per sequence of what a state holds, by what they are."""
    parts = {name: part for name, part in state._asdict().items() if isinstance(part, Tensor)}
    assert all(part.shape[0] == B for part in parts.values())
    kind = {"memory": "recurrent", "conv": "convolution", "keys": "cache", "values": "cache", "left": "cache", "shift": "shift", "maximum": "recurrent"}
    counted = dict.fromkeys(("recurrent", "cache", "convolution", "shift"), 0)
    for name, part in parts.items():
        if part.is_floating_point():
            counted[kind[name]] += part.numel() // B
    return counted


@pytest.mark.parametrize("seq_len", [1, 3, 4, 70])
def test_state_floats_are_what_the_state_holds(variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor], seq_len: int) -> None:
    mixer = build()
    size = mixer.state_floats(seq_len)
    memory, convolution = (variant.native_state if form == "native" else variant.controlled_state)(seq_len)
    shift = variant.shift if form == "native" else 0
    assert (size.recurrent + size.cache, size.convolution, size.shift) == (memory, convolution, shift)
    assert size.total == memory + convolution + shift
    assert (size.cache > 0) == issubclass(variant.cls, Attention)
    assert held(mixer.init_state(B, capacity=seq_len), seq_len) == size._asdict()
    assert held(mixer(tokens(seq_len), mixer.init_state(B, capacity=seq_len)).state, seq_len) == size._asdict()


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_as_many_as_published(name: str) -> None:
    variant = VARIANTS[name]
    mixer = variant.cls(variant.parsed("native"), LayerInfo(0, 2, D))
    assert sum(parameter.numel() for parameter in mixer.parameters()) == variant.parameters


@torch.no_grad()
def test_only_a_cache_without_window_grows(variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor]) -> None:
    mixer = build()
    grows = issubclass(variant.cls, Attention) and "window" not in variant.settings
    short, long = mixer.state_floats(5).total, mixer.state_floats(500).total
    assert (long > short) if grows else (long == short)
    if not grows:
        state = mixer.init_state(B, capacity=5)
        shapes = [part.shape for part in tensors(state)]
        for _ in range(4):
            state = mixer(tokens(9), state).state
            assert [part.shape for part in tensors(state)] == shapes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_state_keeps_its_shapes_and_dtypes(build: Build, tokens: Callable[..., Tensor], dtype: torch.dtype) -> None:
    mixer, x = build(dtype), tokens(5, dtype)
    state = mixer.init_state(B, capacity=5)
    kinds = [(part.shape, part.dtype) for part in tensors(state)]
    for part in x.split([1, 4], dim=1):
        y, state, _ = mixer(part, state)
        assert y.dtype == dtype
        assert [(part.shape, part.dtype) for part in tensors(state)] == kinds

"""Helpers of tests of variants: a mixer in float64 with the same weights every time."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from linbench.experiments.registry import SHIPPED, registry
from linbench.models.base import LayerInfo, Mixer

B, D, HEADS = 2, 16, 2
"""Batch, width and heads of a layer under test, unless the test says otherwise."""

FIRST = LayerInfo(0, 1, D)

SHARING: dict[str, type[Mixer]] = {
    name: entry.cls
    for name, entry in registry("model").entries.items()
    if entry.source == SHIPPED
    and (field := entry.cls.Settings.model_fields.get("key_heads"))
    and field.annotation is not type(None)
}
"""The variants in which several heads of values may share a key."""

Error = Callable[[Tensor, Tensor], float]
Randomise = Callable[[Mixer], Mixer]


def build_mixer(cls: type[Mixer], layer: LayerInfo = FIRST, **settings: Any) -> Any:
    """Build a mixer in float64 under a fixed random state."""
    around = {"heads": HEADS} if "heads" in cls.Settings.model_fields else {}
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed looks through the stack for a CUDA that has not begun, which takes time
        torch.default_generator.manual_seed(1)
        return cls(cls.Settings.parse({**around, **settings}, where="model"), layer).double()


def in_form(cls: type[Mixer], form: str, **settings: Any) -> Any:
    """Build a mixer in one of its forms, native or controlled, with settings of its own."""
    return build_mixer(cls, **{**(cls.controlled or {} if form == "controlled" else {}), **settings})


def tokens(length: int, generator: torch.Generator) -> Tensor:
    """Draw x [B, T, D] in float64."""
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


def scales(mixer: Any) -> Tensor:
    """Return the factor on the scores of each head of softmax attention."""
    constant = torch.full((HEADS,), 1 / math.sqrt(D // HEADS), dtype=torch.float64)
    return constant if mixer.scale is None else mixer.scale


def streamed(mixer: Mixer, x: Tensor, *, prompt: int) -> list[Tensor]:
    """Return outputs for x [B, T, D], T > 64, in parts: cut in two ways, and by token after a prompt."""
    length, outputs = x.shape[1], []
    for points in ([1, 30, length - 31], [63, 1, length - 64]):
        state, parts = mixer.init_state(len(x), capacity=length), []
        for part in x.split(points, dim=1):
            y, state, _ = mixer(part, state)
            parts.append(y)
        outputs.append(torch.cat(parts, dim=1))
    y, state, _ = mixer.prefill(x[:, :prompt], capacity=length)
    parts = [y]
    for token in x[:, prompt:].split(1, dim=1):
        y, state, _ = mixer.decode(token, state)
        parts.append(y)
    return [*outputs, torch.cat(parts, dim=1)]

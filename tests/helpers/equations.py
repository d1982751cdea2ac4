"""A mixer beside its equation, written in a test as a loop over tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.models.base import Mixer
from linbench.models.blocks.heads import share_input

LENGTHS = (1, 65, *(pytest.param(length, marks=pytest.mark.slow) for length in (63, 100)))
"""Odd lengths, below and above those of blocks."""

Loop = Callable[[Any, Tensor], tuple[Tensor, Tensor, Tensor]]
"""A function of a mixer and x [B, T, D] that returns o [B, T, H, V], and the keys and values [B, T, H, K or
V] that its cache holds after x."""


def assert_is_its_equation(mixer: Mixer, x: Tensor, loop: Loop, limit: float = 1e-9) -> None:
    """Outputs, the cache after a prompt, and every gradient are those of the loop."""
    found, expected = {}, {}
    for results, compute in ((found, _whole), (expected, loop)):
        given = x.clone().requires_grad_()
        mixer.zero_grad()
        made = compute(mixer, given)
        y = made[0] if compute is _whole else mixer.readout(made[0], given)
        results |= {"y": y, "keys": made[1], "values": made[2]}
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).sin().view_as(y)
        (y * weights).sum().backward()
        results |= {name: p.grad for name, p in mixer.named_parameters()} | {"x": given.grad}
    for name, wanted in expected.items():
        given = found[name]
        if wanted is None:  # of what one token alone does not use
            assert given is None or not given.any(), name
            continue
        assert given is not None, name
        torch.testing.assert_close(
            given,
            wanted,
            rtol=0,
            atol=limit * (1 + wanted.abs().max().item()),
            msg=lambda m, n=name: f"{n}: {m}",
        )


def _whole(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        state = mixer.prefill(x, capacity=x.shape[1] + 2).state
    length = x.shape[1]
    return mixer(x).y, *(part[:, :, :length].transpose(1, 2) for part in (state.keys, state.values))


def recurred(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the memory after x [B, T, D], as the mixer's recurrence computes them."""
    given = share_input(x, mixer, mixer.readout)
    o, memory = mixer.recur(given, *mixer.project(given, None)[:3], None)
    return o, memory


def assert_recurs_as(
    loop: Callable[[Any, Tensor], tuple[Tensor, Tensor]],
    mixer: Mixer,
    x: Tensor,
    relative_error: Callable[[Tensor, Tensor], float],
    *,
    limit: float = 1e-8,
    made: Callable[[Any, Tensor], tuple[Tensor, Tensor]] = recurred,
) -> None:
    """Outputs, memory, and the gradients of all parameters before the readout are those of the loop."""
    found = []
    for function in (made, loop):
        mixer.zero_grad()
        o, memory = function(mixer, x)
        numbers = torch.cat([o.flatten(), memory.flatten()])
        (numbers * torch.linspace(-1, 2, len(numbers), dtype=torch.float64).sin()).sum().backward()
        used = {name: p.grad for name, p in mixer.named_parameters() if not name.startswith("readout")}
        found.append({"o": o.detach(), "memory": memory.detach(), **used})
    for name, expected in found[1].items():
        assert relative_error(found[0][name], expected) < limit, name

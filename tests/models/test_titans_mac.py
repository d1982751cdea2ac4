"""Titans' memory as context of attention within segments, by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.models.titans_mac import Segment, TitansMAC
from tests.helpers.models import HEADS, B, Error, Randomise, build_mixer
from tests.helpers.trained_memories import (
    LENGTHS,
    assert_is_by_hand,
    drawn,
    heads,
    recalled,
    rms_normed,
    turned,
    unit,
)


def mac_by_hand(mixer: Any, x: Tensor) -> Tensor:
    """Attention over a list of keys, and a memory that is trained token by token, by autograd."""
    s, w, width = mixer.settings, dict(mixer.named_parameters()), mixer.project.key_dim
    M = [m.expand(B, *m.shape) for m in mixer.initial(x)]
    S, rows = [torch.zeros_like(m) for m in M], []
    persistent = w["persistent"][:, None].expand(-1, B, -1, -1)

    def mapped(name: str, x: Tensor) -> tuple[Tensor, ...]:
        return (x.flatten(-2) @ w[f"{name}.weight"].T).unflatten(-1, (HEADS, -1)).split(width, dim=-1)

    def gate(name: str, y: Tensor) -> Tensor:
        return (y.flatten(-2) @ w[f"{name}.weight"].T + w[f"{name}.bias"]).sigmoid()[..., None, None]

    for t, (q, k, v) in enumerate(zip(*heads(mixer, x), strict=True)):
        place, q, k = t % s.mini_batch, unit(q), unit(k)
        if place == 0:
            keys, values = [*unit(persistent[..., :width])], [*persistent[..., width:]]
            # in a graph of their own: a gradient of the memory is not one of keys that were made of it
            before, weights = M, [m.clone() for m in M]
        context_key, context_value = mapped("of_recalled", recalled(q, before, w))
        keys += [turned(unit(context_key), place), turned(k, place)]
        values += [context_value, v]
        scores = torch.einsum("bhk,sbhk->bhs", turned(q, place), torch.stack(keys)) * w["scale"][:, None]
        attended = torch.einsum("bhs,sbhk->bhk", scores.softmax(-1), torch.stack(values))
        y = rms_normed(attended) * w["attention_norm.weight"]
        asked, key, value = mapped("of_attended", y)
        loss = (recalled(unit(key), weights, w) - value).square().sum() / 2
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        theta = s.inner_rate * gate("rate", y)
        S = [gate("momentum", y) * last - theta * g for last, g in zip(S, gradients, strict=True)]
        M = [gate("keep", y) * m + change for m, change in zip(M, S, strict=True)]
        read = (rms_normed(recalled(unit(asked), M, w)) * w["memory_norm.weight"]).sigmoid()
        rows.append((y * read).flatten(-2))
    return torch.stack(rows, dim=1) @ w["readout.linear.weight"].T


@LENGTHS
def test_mac_is_its_equation(generator: torch.Generator, randomise: Randomise, length: int) -> None:
    mixer = randomise(build_mixer(TitansMAC, conv=0, mini_batch=8, persistent=2))
    with torch.no_grad():
        mixer.keep.bias += 4  # what is divided by its size must not vanish
    x = drawn(generator, length).requires_grad_()
    assert_is_by_hand(mixer, mac_by_hand(mixer, x), x, generator)


@torch.no_grad()
def test_rows_may_stand_at_places_of_their_own(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    mixer, x = randomise(build_mixer(TitansMAC, conv=0, mini_batch=4)), drawn(generator, 16)
    whole, seen = mixer(x).y, [3, 6]
    states = [mixer(x[:, :n], mixer.init_state(B, capacity=16)).state for n in seen]
    state = Segment(*(
        None if row[0] is None else torch.stack([part[b] for b, part in enumerate(row)])
        for row in zip(*states, strict=True)
    ))  # fmt: skip
    for length in (1, 2, 7):
        rows = torch.stack([x[b, n : n + length] for b, n in enumerate(seen)])
        y, state, _ = mixer(rows, state)
        expected = torch.stack([whole[b, n : n + length] for b, n in enumerate(seen)])
        assert relative_error(y, expected) < 1e-12
        seen = [n + length for n in seen]


@torch.no_grad()
def test_only_the_memory_reaches_beyond_a_segment(generator: torch.Generator, randomise: Randomise) -> None:
    x = drawn(generator, 12)
    changed = torch.cat([x[:, :1], -x[:, 1:2], x[:, 2:]], dim=1)
    for learns in (True, False):
        mixer = randomise(build_mixer(TitansMAC, conv=0, mini_batch=4, decay=False))
        if not learns:
            mixer.rate.bias.fill_(-1e3)
        moved = (mixer(changed).y - mixer(x).y).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [False] + [True] * 3 + [learns] * 8


@pytest.mark.slow
def test_gradients_are_finite_differences(generator: torch.Generator, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(TitansMAC, mini_batch=2, persistent=1))
    names, weights = zip(*mixer.named_parameters(), strict=True)

    def outputs(x: Tensor, *given: Tensor) -> Tensor:
        out = torch.func.functional_call(mixer, dict(zip(names, given, strict=True)), x)
        y: Tensor = out.y
        return y

    x = drawn(generator, 5).requires_grad_()
    assert torch.autograd.gradcheck(outputs, (x, *weights), fast_mode=True, eps=1e-6, atol=1e-6)


@torch.no_grad()
def test_replicas_are_stacked(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    mixers = [randomise(build_mixer(TitansMAC, mini_batch=4)) for _ in range(2)]
    x, start = drawn(generator, 10), mixers[0].init_state(B, capacity=10)

    def run(parameters: Any) -> Tensor:
        first, state, _ = torch.func.functional_call(mixers[0], parameters, (x[:, :3], start))
        rest: Tensor = torch.func.functional_call(mixers[0], parameters, (x[:, 3:], state)).y
        return torch.cat([first, rest], dim=1)

    parameters, _ = torch.func.stack_module_state(mixers)  # type: ignore[no-untyped-call]
    for y, mixer in zip(torch.vmap(run)(parameters), mixers, strict=True):
        assert relative_error(y, mixer(x, start).y) < 1e-12

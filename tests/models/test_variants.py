"""The laws that every variant keeps, in its published and in the controlled form."""

import itertools
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Mixer
from linbench.models.base_conv import BaseConv
from linbench.models.rosa import ROSA
from linbench.models.rwkv7 import FirstValue
from linbench.models.stick_breaking import StickBreaking
from linbench.models.titans import TitansMemory
from tests.helpers.every_variant import (
    DTYPES,
    GROWING,
    HEADS,
    KERNEL,
    WINDOW,
    B,
    Build,
    D,
    Error,
    Variant,
    tensors,
)

TOKEN_BY_TOKEN = [1, 2, 3, *range(15, 19), *range(31, 34), *range(47, 50), *range(61, 70)]
"""Ends of parts, most of one token: at the start, and around the ends of mini-batches and of a chunk."""


def streamed(mixer: Mixer, x: Tensor, *points: int) -> Tensor:
    """x in the parts between `points`, one after the other."""
    state, parts = mixer.init_state(x.shape[0], capacity=x.shape[1]), []
    for start, end in itertools.pairwise((0, *points, x.shape[1])):
        out = mixer(x[:, start:end], state)
        parts.append(out.y)
        state = out.state
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(
    ("length", "dtype"), [(7, torch.float64), (70, torch.float64), (70, torch.float32)], ids=str
)
@torch.no_grad()
def test_stopping_anywhere_and_carrying_on_changes_nothing(
    build: Build,
    tokens: Callable[..., Tensor],
    relative_error: Error,
    dtype: torch.dtype,
    length: int,
) -> None:
    """Every kind of place in float64; in float32, where rounding differs alone, a few."""
    mixer, x, tolerance = build(dtype), tokens(length, dtype), DTYPES[dtype]
    whole = mixer(x).y
    assert whole.dtype == dtype
    assert whole.abs().mean() > 1e-3
    assert relative_error(streamed(mixer, x), whole) < tolerance
    pick = random.Random(length)
    several = [sorted(pick.sample(range(1, length), count)) for count in (2, 5)]
    if dtype == torch.float32:
        ways = [*several, [64]]
    elif length < 10:
        ways = [[*range(1, length)], *([point] for point in range(1, length))]
    else:
        ways = [*several, TOKEN_BY_TOKEN, *([point] for point in (pick.randrange(1, length), 63, 64, 65))]
    for points in ways:
        assert relative_error(streamed(mixer, x, *points), whole) < tolerance, points


@pytest.mark.parametrize("length", [1, 70])
@torch.no_grad()
def test_a_prompt_leaves_the_state_that_it_leaves_after_an_empty_one(
    build: Build, tokens: Callable[..., Tensor], relative_error: Error, length: int
) -> None:
    mixer, x = build(), tokens(length + 3)
    y, state, _ = mixer.prefill(x[:, :length], capacity=length + 3)
    expected_y, expected_state, _ = mixer(x[:, :length], mixer.init_state(B, capacity=length + 3))
    # which are all zero where the only token sees nothing
    assert torch.equal(y, expected_y) or relative_error(y, expected_y) < 1e-9
    rest, expected = (mixer(x[:, length:], each) for each in (state, expected_state))
    assert relative_error(rest.y, expected.y) < 1e-9
    assert [(part.shape, part.dtype) for part in tensors(rest.state)] == [
        (part.shape, part.dtype) for part in tensors(expected.state)
    ]


@pytest.mark.parametrize("parts", [[1] * 6, [3, 1, 2]])
@torch.no_grad()
def test_tokens_are_decoded_as_they_are_read(
    build: Build, tokens: Callable[..., Tensor], relative_error: Error, parts: list[int]
) -> None:
    mixer, x = build(), tokens(11 + sum(parts))
    _, state, _ = mixer.prefill(x[:, :11], capacity=x.shape[1])
    expected = mixer(
        x[:, 11:], tree_map(lambda part: part.clone() if isinstance(part, Tensor) else part, state)
    )
    found = []
    for part in x[:, 11:].split(parts, dim=1):
        again = mixer.decode(part, state).y  # of the same state, as a benchmark asks
        y, state, _ = mixer.decode(part, state)
        assert torch.equal(y, again)
        found.append(y)
    assert relative_error(torch.cat(found, dim=1), expected.y) < 1e-9
    rest = tokens(1)
    full = mixer.init_state(B, capacity=1)
    alone, expected_y = mixer.decode(rest, full).y, mixer(rest).y
    assert torch.equal(alone, expected_y) or relative_error(alone, expected_y) < 1e-9


@pytest.mark.parametrize("state", ["none", "fresh"])
@torch.no_grad()
def test_no_output_depends_on_a_later_token(
    variant: Variant, build: Build, tokens: Callable[..., Tensor], state: str
) -> None:
    """Rows of one batch are alike up to a token; that rows do not touch is a law of its own."""
    mixer, length, places = build(), 70, (1, 5, 35, 63, 64, 65, 69)
    first, other = tokens(length)
    x = torch.stack([first, *(torch.cat([first[:t], 3 * other[t:]]) for t in places)])
    y = mixer(x, None if state == "none" else mixer.init_state(len(x), capacity=length)).y
    for t, row in zip(places, y[1:], strict=True):
        apart = (row - y[0]).abs().amax(dim=1)
        assert apart[:t].max() <= 1e-13 * y[0].abs().max()
        if variant.cls is ROSA:  # a token that matches nothing reads nothing
            assert apart[t:].max() > 0 or t == length - 1
        else:
            assert apart[t] > 0


@torch.no_grad()
def test_every_output_depends_on_every_earlier_token_within_reach(
    variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor]
) -> None:
    if variant.cls is ROSA:
        pytest.skip("it reads one earlier token alone, and none where nothing repeats")
    mixer, length = build(), 7
    x = tokens(length)
    changed = x.expand(length, B, length, D).clone()  # one token of each
    changed[range(length), :, range(length)] = (1 - 2 * x).transpose(0, 1)
    y = mixer(torch.cat([x, changed.flatten(0, 1)])).y.unflatten(0, (1 + length, B))
    for t in range(length):
        moved = (y[1 + t] - y[0]).abs().amax(dim=(0, 2)) > 1e-12
        reach = (
            WINDOW + 3 * (form == "controlled")
            if "window" in variant.settings and not issubclass(variant.cls, TitansMemory)  # of its gradient
            else KERNEL
            if variant.cls is BaseConv
            else length
        )
        # the first token breaks no stick: it sees nothing, not even itself
        first = int(variant.cls is StickBreaking)
        assert moved.tolist() == [max(t, first) <= s < t + reach for s in range(length)]


@torch.no_grad()
def test_rows_of_a_batch_do_not_touch(
    build: Build, tokens: Callable[..., Tensor], relative_error: Error
) -> None:
    mixer, x = build(), tokens(70)
    whole = mixer(x).y
    changed = torch.stack([x[0], 5 * x[1] + 1])
    y = mixer(changed).y
    assert relative_error(y[0], whole[0]) < 1e-12
    assert relative_error(y[1], whole[1]) > 1e-3
    assert relative_error(mixer(x[1:]).y[0], whole[1]) < 1e-12
    assert relative_error(streamed(mixer, x[:1], 9)[0], streamed(mixer, x, 9)[0]) < 1e-12


@pytest.mark.parametrize("length", [1, 4])
def test_states_are_never_written_in_place(build: Build, tokens: Callable[..., Tensor], length: int) -> None:
    mixer, x = build(), tokens(5 + length)
    first = mixer.init_state(B, capacity=5 + length)
    second = mixer(x[:, :5], first).state
    for state, part in ((first, x[:, :5]), (second, x[:, 5:])):
        before = [part.clone() for part in tensors(state)]
        after = list(tensors(mixer(part, state).state))
        assert len(after) == len(before)
        assert all(
            torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(tensors(state), before, strict=True)
        )
        assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))


@torch.no_grad()
def test_a_state_keeps_nothing_else_in_memory(build: Build, tokens: Callable[..., Tensor]) -> None:
    """No view of what every token of a prompt has left."""
    mixer = build()
    for part in tensors(mixer.prefill(tokens(300), capacity=300).state):
        assert part.untyped_storage().nbytes() <= 2 * part.numel() * part.element_size() + 64


@torch.no_grad()
def test_a_state_can_be_carried_on_twice(build: Build, tokens: Callable[..., Tensor]) -> None:
    mixer, x = build(), tokens(9)
    state = mixer(x[:, :6], mixer.init_state(B, capacity=9)).state
    once, other = mixer(x[:, 6:], state).y, mixer(-x[:, 6:], state).y
    assert torch.equal(mixer(x[:, 6:], state).y, once)
    assert not torch.equal(other, once)


@torch.no_grad()
def test_a_full_cache_says_so_and_what_needs_none_runs_on(
    variant: Variant, build: Build, tokens: Callable[..., Tensor], relative_error: Error
) -> None:
    mixer, x = build(), tokens(5)
    full = mixer(x[:, :4], mixer.init_state(B, capacity=4))
    if issubclass(variant.cls, GROWING) and "window" not in variant.settings:
        with pytest.raises(RuntimeError, match="holds 4 tokens"):
            mixer(x, mixer.init_state(B, capacity=4))
        with pytest.raises(RuntimeError, match="holds 4 tokens"):
            mixer(x[:, 4:], full.state)
    else:
        assert relative_error(mixer(x[:, 4:], full.state).y, mixer(x).y[:, 4:]) < 1e-9


@torch.no_grad()
def test_a_window_wider_than_the_cache_does_not_lose_keys_in_silence(
    randomise: Callable[[Mixer], Mixer], tokens: Callable[..., Tensor]
) -> None:
    mixer, x = (
        randomise(Attention(Attention.Settings(heads=HEADS, window=4), LayerInfo(0, 2, D))).double(),
        tokens(5),
    )
    state = mixer(x[:, :2], mixer.init_state(B, capacity=2)).state
    with pytest.raises(RuntimeError, match="holds 2 tokens"):
        mixer(x[:, 2:3], state)


@pytest.mark.parametrize("length", [5, 65])
def test_every_parameter_and_the_input_learn(
    build: Build, tokens: Callable[..., Tensor], generator: torch.Generator, length: int
) -> None:
    mixer, x = build(), tokens(length).requires_grad_()
    y = mixer(x).y
    (y * torch.randn(y.shape, dtype=y.dtype, generator=generator)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in mixer.named_parameters()} | {"x": x.grad}
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 1e-12, name


@torch.no_grad()
def test_no_unwritten_memory_is_read(
    build: Build, tokens: Callable[..., Tensor], relative_error: Error, poisoned_memory: None
) -> None:
    mixer, x = build(), tokens(11)
    assert relative_error(streamed(mixer, x, 1, 2, 6), mixer(x).y) < 1e-9


@torch.no_grad()
def test_a_fresh_layer_is_silent_but_for_what_it_adds_by_definition(
    variant: Variant, form: str, tokens: Callable[..., Tensor]
) -> None:
    mixer = variant.cls(variant.parsed(form), LayerInfo(0, 2, D))
    assert mixer(tokens(5, torch.float32)).y.any() == (variant.cls is BaseConv)  # which adds its own input


@torch.no_grad()
def test_what_is_handed_on_passes_through(build: Build, tokens: Callable[..., Tensor]) -> None:
    cross_layer = object()
    given = build()(tokens(3), None, cross_layer).cross_layer
    assert (given.cross_layer if isinstance(given, FirstValue) else given) is cross_layer


def test_rules_name_parameters_of_the_layer(build: Build) -> None:
    mixer = build()
    assert mixer.parameter_rules().keys() <= dict(mixer.named_parameters()).keys()

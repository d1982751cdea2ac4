"""The bytes that a language model keeps after a prompt: what grows with the length, and what does not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_NO_STATE = ("loss", "logits", "hidden_states", "attentions")
"""Outputs of a model that are not carried from token to token."""


class StateBytes(NamedTuple):
    """Bytes of one sequence's state.

    recurrent: of tensors of one size at any length, convolutions' among them. cache: of tensors that grow
    with the length. tokens: the length after which they were measured.
    """

    recurrent: int
    cache: int
    tokens: int


@torch.no_grad()
def measure_state(module: Any, tokens: Tensor) -> StateBytes | None:
    """Return what a model keeps after a prompt [L] of at least two tokens.

    A tensor counts as cache if it is larger than after half of the prompt. Whole numbers of 64 bits are
    positions and counters, which do not count.

    Returns: None where the model returns no state.
    """
    half, whole = (
        _sizes(module(input_ids=tokens[None, :n], use_cache=True)) for n in (len(tokens) // 2, len(tokens))
    )
    if not whole:
        return None
    growing = {name for name, size in whole.items() if size > half.get(name, 0)}
    cache = sum(size for name, size in whole.items() if name in growing)
    return StateBytes(sum(whole.values()) - cache, cache, len(tokens))


def _sizes(output: Any) -> dict[str, int]:
    """Return the bytes of each tensor of the state in a model's output, by its place; each tensor once."""
    sizes, seen = {}, set[int]()
    for name, value in output.items():
        for place, tensor in _tensors(value, name, seen) if name not in _NO_STATE else ():
            sizes[place] = tensor.numel() * tensor.element_size()
    return sizes


def _tensors(value: Any, place: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in lists, mappings and objects, with the way to each."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        if value.dtype != torch.int64:
            yield place, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(part, f"{place}.{key}", seen)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, part in enumerate(value):
            yield from _tensors(part, f"{place}.{number}", seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from _tensors(vars(value), place, seen)

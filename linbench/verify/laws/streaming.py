"""The law of streaming."""

import itertools
import random
from typing import Any

import torch
from torch import Tensor

from linbench.engine.layer_under_test import LAYER_POSITIONS, ROWS, LayerUnderTest, difference, tensor_leaves
from linbench.models.base import Mixer
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH, dtype_name, within


@law("streaming", place=3)
@torch.no_grad()
def streaming(subject: LayerUnderTest) -> Found:
    """A sequence stopped anywhere and carried on gives what it gives as a whole.

    It holds token by token, and by prefill and decode, too: to 1e-9 in float64.
    """
    x, errors = subject.tokens(LENGTH), {}
    for index, decoding in itertools.product(LAYER_POSITIONS, (False, True)):
        mixer = subject.at_layer(index)
        where = (", by prefill and decode" if decoding else "") + LAYER_POSITIONS[index]
        fresh = subject.initial_state(mixer, ROWS, LENGTH)
        _, streamed = subject.stream(mixer, x, [9], decoding=decoding)
        if _kinds(fresh) != _kinds(streamed):
            return False, f"the state was {_kinds(fresh)} and became {_kinds(streamed)}{where}"
        whole = mixer(x).y
        for points in _stops():
            y, _ = subject.stream(mixer, x, points, decoding=decoding)
            errors[f", {_at(points)}{where}"] = difference(y, whole)
        if _writes(mixer, x, subject.initial_state(mixer, ROWS, LENGTH)):
            return False, f"forward writes into the state that it is given{LAYER_POSITIONS[index]}"
    holds, measured = within(subject.limit(1e-9), errors, "differs")
    return holds, f"{measured} over {len(errors)} ways" if holds else measured


def _stops() -> list[list[int]]:
    """Return where sequences are stopped: nowhere, everywhere, around a chunk's end, and at random."""
    pick = random.Random(0)
    at_random = [sorted(pick.sample(range(1, LENGTH), count)) for count in (1, 2, 3, 5)]
    return [[], list(range(1, LENGTH)), [1], [63], [64], [65], *at_random]


def _at(points: list[int]) -> str:
    if len(points) == LENGTH - 1:
        return "token by token"
    return f"stopped at {', '.join(map(str, points)) or 'the end only'}"


def _kinds(state: Any) -> list[tuple[list[int], str]]:
    return [(list(part.shape), dtype_name(part.dtype)) for part in tensor_leaves(state)]


def _writes(mixer: Mixer, x: Tensor, state: Any) -> bool:
    """Tell whether forward changes a state that it is given: an empty one, and later ones."""
    for part in torch.split(x, [9, 1, x.shape[1] - 10], dim=1):
        before = [each.clone() for each in tensor_leaves(state)]
        after = mixer(part, state).state
        if not all(map(torch.equal, before, tensor_leaves(state))):
            return True
        state = after
    return False

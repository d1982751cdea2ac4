"""Sequences of `variable_overwrite` as they are read: writes, and the answers to questions."""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.blocks.overwriting import FIRST_KEY, VariableOverwriteSettings

__all__ = ["Reading", "answer_questions", "read_writes"]


class Reading(NamedTuple):
    """A sequence as it is read at every position.

    named: the parts of the key that ends there [B, T, parts]; anything where none does. wrote: whether a
    write ends there [B, T]. key, value: of that write [B, T, parts] and [B, T].
    """

    named: Tensor
    wrote: Tensor
    key: Tensor
    value: Tensor


def read_writes(s: VariableOverwriteSettings, inputs: Tensor) -> Reading:
    """Return what stands at every position of inputs [B, T] or [B, T, 2]."""
    if s.width > 1:
        named, value = inputs[:, :, :1], inputs[:, :, 1]
        key = named
    else:
        named = torch.stack([inputs.roll(back, dims=1) for back in reversed(range(s.parts))], dim=2)
        key, value = named.roll(1, dims=1), inputs
    is_key = (key[:, :, -1] >= FIRST_KEY) & (key[:, :, -1] < s.first_value)
    return Reading(named, is_key & (value >= s.first_value) & (value < s.first_noise), key, value)


def answer_questions(s: VariableOverwriteSettings, inputs: Tensor, positions: Tensor) -> Tensor:
    """Return the values of the keys that end at these positions [B, N], as far back as is asked.

    Keys from before a reset do not come again.
    """
    read = read_writes(s, inputs)
    mark = inputs[:, :, 1] if s.width > 1 else inputs.roll(s.parts, dims=1)
    time = torch.arange(s.seq_len, device=inputs.device)
    answers = []
    for at in torch.split(positions, 1, dim=1):
        back = {
            "none": torch.zeros_like(at),
            "n_back": torch.full_like(at, s.n - 1),
            "return_all": mark.gather(1, at) - s.marks[-1] + len(s.marks) - 1,
        }
        asked = read.named.take_along_dim(at[:, :, None], dim=1)
        own = read.wrote & (read.key == asked).all(dim=2) & (time < at)
        following = own.flip(1).cumsum(dim=1).flip(1)
        answers.append((read.value * (own & (following == back[s.control].clamp(min=0) + 1))).sum(dim=1))
    return torch.stack(answers, dim=1)

"""Formulas for the least that a layer must compute and move, to hold beside a device's peak rates."""

from typing import Literal

from torch import nn

from linbench.models.base import Mixer, StateSize
from linbench.models.blocks.convolution import ShortConvolution

Work = Literal["train", "prefill", "decode"]
"""Kind of work: training on a batch, a prompt after which the state is kept, or one more token."""

FLOAT32 = 4
"""Bytes of a float32; recurrent state has at least this precision."""


def map_flops(module: nn.Module) -> int:
    """Return forward operations per token of the linear maps and short convolutions in a module.

    A multiply-add counts two.
    """
    return sum(
        2 * part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear | ShortConvolution)
    )


def layer_flops(mixer: Mixer, seq_len: int) -> float | None:
    """Return forward operations per token of a whole layer, averaged over a sequence.

    The recurrence counts as if computed token by token. Elementwise operations around it count nothing. None
    if the recurrence is not declared.
    """
    recurrence = mixer.recurrence_flops(seq_len)
    return None if recurrence is None else map_flops(mixer) + recurrence


def work_flops(mixer: Mixer, work: Work, *, batch: int, length: int) -> float | None:
    """Return the operations of a batch of sequences of `length` tokens.

    The backward pass counts twice the forward pass. Decoding counts one token for each sequence, after
    `length` others. None if the layer does not declare its operations.
    """
    if work != "decode":
        per_token = layer_flops(mixer, length)
        return None if per_token is None else (3 if work == "train" else 1) * batch * length * per_token
    after, before = (layer_flops(mixer, tokens) for tokens in (length + 1, length))
    # means over a sequence, so the last token alone
    return None if after is None or before is None else batch * ((length + 1) * after - length * before)


def work_bytes(mixer: Mixer, work: Work, *, batch: int, length: int, itemsize: int) -> int | None:
    """Return the bytes that any implementation must read or write.

    Everything in between is taken to stay on the chip. Training reads the weights forward and backward and
    writes their gradients; it reads x, the gradient of y and x once more, and writes y and the gradient of x.
    A prompt reads weights and x, and writes y and the state. A token reads weights, without those of an
    initial state, x and the whole state, and writes y and the part of the state that changes: of a cache, one
    token's. None if the layer does not declare a state.

    Args:
        itemsize: bytes of one number of x and of the weights.
    """
    weights = sum(parameter.numel() for parameter in mixer.parameters()) * itemsize
    one = batch * mixer.layer.d_model * itemsize
    if work == "train":
        return 3 * weights + 5 * length * one
    size, first = mixer.state_floats(length), mixer.state_floats(1)
    if size is None or first is None:
        return None
    held = batch * state_bytes(size, itemsize)
    if work == "prefill":
        return weights + 2 * length * one + held
    started = (mixer.get_submodule(name) for name in mixer.only_at_start)
    weights -= sum(parameter.numel() for part in started for parameter in part.parameters()) * itemsize
    changed = batch * state_bytes(size._replace(cache=first.cache), itemsize)
    return weights + 2 * one + held + changed


def state_bytes(size: StateSize, itemsize: int) -> int:
    """Return the bytes of one sequence's state.

    Recurrent floats take at least float32; all others take what the weights take.
    """
    return size.recurrent * max(FLOAT32, itemsize) + (size.total - size.recurrent) * itemsize

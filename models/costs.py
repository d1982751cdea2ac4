"""What a layer must compute and move at the least, as formulas: what a machine's peak rates are held
against."""

from typing import Literal

from torch import nn

from linbench.models.base import Mixer, StateSize
from linbench.models.blocks.convolution import ShortConvolution

Work = Literal["train", "prefill", "decode"]
"""Forward and backward of a batch; a prompt, after which the state is kept; one token after others."""

FLOAT32 = 4
"""Bytes, which recurrent numbers have at least."""


def map_flops(module: nn.Module) -> int:
    """Forward floating-point operations per token of the linear maps and short convolutions within (a
    multiply-add counts two)."""
    return sum(
        2 * part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear | ShortConvolution)
    )


def layer_flops(mixer: Mixer, seq_len: int) -> float | None:
    """Forward floating-point operations per token of a whole layer, averaged over a sequence; None where it
    does not declare its recurrence's.

    The recurrence counts token by token, whatever form computes it; what is elementwise around it counts
    nothing.
    """
    recurrence = mixer.recurrence_flops(seq_len)
    return None if recurrence is None else map_flops(mixer) + recurrence


def work_flops(mixer: Mixer, work: Work, *, batch: int, length: int) -> float | None:
    """Of a batch of sequences of `length` tokens; backward takes twice as many as forward. Of decoding: of
    one token after `length` others, for each of the batch."""
    if work != "decode":
        per_token = layer_flops(mixer, length)
        return None if per_token is None else (3 if work == "train" else 1) * batch * length * per_token
    after, before = (layer_flops(mixer, tokens) for tokens in (length + 1, length))
    # means over a sequence, so the last token alone
    return None if after is None or before is None else batch * ((length + 1) * after - length * before)


def work_bytes(mixer: Mixer, work: Work, *, batch: int, length: int, itemsize: int) -> int | None:
    """That any implementation must read or write, whatever lies in between kept on the chip; None where the
    layer declares no state.

    Training reads the weights forward and backward and writes their gradients; it reads x and the gradient of
    y, x once more, and writes y and the gradient of x. A prompt reads weights and x, and writes y and the
    state. A token reads weights, x and the whole state, and writes y and what changes of the state: of a
    cache one token's.

    Args:
        itemsize: bytes of a number of x and the weights.
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
    changed = batch * state_bytes(size._replace(cache=first.cache), itemsize)
    return weights + 2 * one + held + changed


def state_bytes(size: StateSize, itemsize: int) -> int:
    """Of one sequence: recurrent numbers in at least float32, all others as the weights are."""
    return size.recurrent * max(FLOAT32, itemsize) + (size.total - size.recurrent) * itemsize

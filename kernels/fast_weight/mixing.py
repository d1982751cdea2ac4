"""The tokens of a mini-batch, and the shares by which their gradients reach the weights."""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.kernels.fast_weight.description import Maps, Step


class Tokens(NamedTuple):
    """Tokens of one mini-batch, or of a part of it.

    q: [B, H, L, K]. learned: k [B, H, S, K], v [B, H, S, V] and rates [B, H, S, M] of the window before them
    and of the tokens, S = window - 1 + L. log_momentum, log_keep, step_sizes: [B, H, L]. scales:
    broadcastable to [B, H, L, 1]. there: [B, 1, L] where places may be empty.
    """

    q: Tensor
    learned: Maps
    log_momentum: Tensor | None
    log_keep: Tensor | None
    step_sizes: Tensor | None
    scales: Tensor | None
    there: Tensor | None = None


class Mixing(NamedTuple):
    """Shares by which gradients reach the weights of tokens: [B, H, L, S], [B, H, L, L] and [B, H, L, 1].

    change: share of key j's gradient in what query i reads [.., L, S]. written: of the change of token j
    [.., L, L]. kept: of what was gathered before. last: of the momentum before. made: share of key j's
    gradient in the change of token i [.., L, S], None if it is that of its own key. left: of the momentum
    before.
    """

    change: Tensor
    written: Tensor
    kept: Tensor | None
    last: Tensor | None
    made: Tensor | None
    left: Tensor | None


def mix(tokens: Tokens, step: Step) -> Mixing:
    """Return the shares for tokens of one mini-batch, or of a part of it."""
    length = tokens.q.shape[2]
    written = tokens.q.new_ones(length, length).tril()
    if step.reads == "before":
        return Mixing(written, written, None, None, None, None)
    kept, last, made, left = None, None, None, None
    if tokens.log_keep is not None:
        written, kept = _products(tokens.log_keep)
    if tokens.step_sizes is not None:
        written = written * tokens.step_sizes[..., None, :]
    if tokens.log_momentum is not None:
        made, left = _products(tokens.log_momentum)
        if tokens.there is not None:  # at an empty place no change is made again
            written = written * tokens.there[..., None, :]
        last = written @ left
    if step.window > 1:
        window = tokens.q.new_ones(length, length + step.window - 1).tril(step.window - 1).triu()
        if tokens.there is not None:  # nor is any made
            window = window * tokens.there[..., :, None]
        made = window if made is None else made @ window
    change = written if made is None else written @ made
    return Mixing(change, written, kept, last, made, left)


def _products(log_gate: Tensor) -> tuple[Tensor, Tensor]:
    """Return products of gates [B, H, L] after j up to i [B, H, L, L], and of all up to i [B, H, L, 1]."""
    total = log_gate.cumsum(dim=-1)[..., None]
    later = torch.ones(*[log_gate.shape[-1]] * 2, dtype=torch.bool, device=log_gate.device).triu(1)
    return (total - total.mT).masked_fill(later, -torch.inf).exp(), total.exp()

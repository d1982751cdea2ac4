"""Predictions from n-grams of the context alone."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Batch, Prediction


def ngrams(batch: Batch, *, order: int, vocab_size: int, counted: int) -> Prediction:
    """Predict with the shares of what followed the longest context of at most order - 1 tokens.

    Only contexts count that were followed by tokens below `counted`; without any, all such tokens are equally
    likely. It backs off without smoothing: nll is infinite for what never followed.
    """
    inputs = batch.inputs
    found = torch.zeros(*inputs.shape, vocab_size, dtype=torch.float64, device=inputs.device)
    found[:, :, :counted] = 1
    for size in range(order):
        _replace_where_seen(found, inputs, size, counted)
    logits = found.log().log_softmax(dim=2).gather(1, batch.positions[:, :, None].expand(-1, -1, vocab_size))
    nll = -logits.gather(2, batch.targets.clamp(min=0)[:, :, None])[:, :, 0]
    return Prediction(logits.argmax(dim=2), nll, logits)


def _replace_where_seen(found: Tensor, inputs: Tensor, size: int, counted: int) -> None:
    """Set `found` [B, T, vocab] to how often each token followed the last `size` tokens before."""
    rows, length, vocab_size = found.shape
    context = torch.zeros_like(inputs)
    for back in range(size):
        context = context * vocab_size + pad(inputs, (back, 0))[:, :length]
    counts = found.new_zeros(rows, vocab_size**size, vocab_size)
    row = torch.arange(rows, device=inputs.device)
    for t in range(max(size - 1, 0), length):
        seen = counts[row, context[:, t]]
        found[:, t] = torch.where(seen.sum(dim=1, keepdim=True) > 0, seen, found[:, t])
        if t + 1 < length:
            counts[row, context[:, t], inputs[:, t + 1]] += inputs[:, t + 1] < counted

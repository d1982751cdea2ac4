"""Predictions from n-grams: of the context alone, or counted in other examples."""

from typing import NamedTuple, Self

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
    return _prediction(logits, batch)


def _replace_where_seen(found: Tensor, inputs: Tensor, size: int, counted: int) -> None:
    """Set `found` [B, T, vocab] to how often each token followed the last `size` tokens before."""
    rows, length, vocab_size = found.shape
    context = _contexts(inputs, size, vocab_size)
    counts = found.new_zeros(rows, vocab_size**size, vocab_size)
    row = torch.arange(rows, device=inputs.device)
    for t in range(max(size - 1, 0), length):
        seen = counts[row, context[:, t]]
        found[:, t] = torch.where(seen.sum(dim=1, keepdim=True) > 0, seen, found[:, t])
        if t + 1 < length:
            counts[row, context[:, t], inputs[:, t + 1]] += inputs[:, t + 1] < counted


class Ngrams(NamedTuple):
    """Counts of what followed contexts of 0, 1, ... tokens, each [vocab_size^tokens, vocab_size]."""

    counts: list[Tensor]

    @classmethod
    def counted(cls, batch: Batch, *, order: int, vocab_size: int) -> Self:
        """Count the targets of examples after contexts of up to order - 1 tokens, where answers are due."""
        counts = []
        for tokens in range(order):
            context = _contexts(batch.inputs, tokens, vocab_size).gather(1, batch.positions)
            found = (context * vocab_size + batch.targets)[batch.is_answer].bincount(
                minlength=vocab_size ** (tokens + 1)
            )
            counts.append(found.double().view(-1, vocab_size))
        return cls(counts)

    def predict(self, batch: Batch, *, order: int) -> Prediction:
        """Predict from contexts of up to order - 1 tokens.

        The shares of what followed a context are mixed with what is predicted from one token less, which
        weighs as much as one token that followed. So nothing is impossible.
        """
        vocab_size = self.counts[0].shape[1]
        shares = self.counts[0].new_full((), 1 / vocab_size)
        for tokens, counts in enumerate(self.counts[:order]):
            context = _contexts(batch.inputs, tokens, vocab_size).gather(1, batch.positions)
            seen = counts.to(context.device)[context]
            shares = (seen + shares) / (seen.sum(dim=2, keepdim=True) + 1)
        return _prediction(shares.log(), batch)


def _contexts(inputs: Tensor, tokens: int, vocab_size: int) -> Tensor:
    """Return a number for the last tokens up to each place [B, T], with 0 before the first."""
    context = torch.zeros_like(inputs)
    for back in range(tokens):
        context = context * vocab_size + pad(inputs, (back, 0))[:, : inputs.shape[1]]
    return context


def _prediction(logits: Tensor, batch: Batch) -> Prediction:
    nll = -logits.gather(2, batch.targets.clamp(min=0)[:, :, None])[:, :, 0]
    return Prediction(logits.argmax(dim=2), nll, logits)

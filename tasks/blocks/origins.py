"""Where an answer comes from: what its key holds or held, what other keys hold, or nowhere in the context."""

import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Mean, Prediction

__all__ = ["first_seen", "origins", "recalled", "weights"]

CURVE = 8
"""Places of the weight-on-old curve, at most."""


def first_seen(tokens: Tensor, size: int) -> Tensor:
    """Where each of `size` ids first stands in tokens [B, L], L if nowhere: [B, size]."""
    B, L = tokens.shape
    return torch.full((B, size), L, device=tokens.device).scatter_reduce(1, tokens, torch.arange(L, device=tokens.device).expand(B, L), "amin")


def origins(batch: Batch, prediction: Prediction, *, seen: Tensor) -> dict[str, Mean]:
    """Of each answer whether it is another value of its key (stale), a value that was only `seen` [B, N] elsewhere (cross), or neither (alien).

    The fact "history" [B, N, R] is what the key was given up to there, newest first, filled up with `IGNORE`; the target is one of it.
    Of stale answers: the value just before the target (previous), the key's first, any between these (middle), or newer than the target.
    Where there is but one older value, it counts as previous and as first.
    """
    history = batch.facts["history"]
    right = prediction.answers == batch.targets
    match = history == prediction.answers[:, :, None]
    stale = match.any(dim=2) & ~right
    age, due = (x.long().argmax(dim=2) for x in (match, history == batch.targets[:, :, None]))
    first = (history != IGNORE).sum(dim=2) - 1
    found = {
        "stale": stale,
        "stale_previous": stale & (age == due + 1),
        "stale_first": stale & (age == first),
        "stale_middle": stale & (age > due + 1) & (age < first),
        "stale_newer": stale & (age < due),
        "cross": seen & ~stale & ~right,
        "alien": ~seen & ~stale & ~right,
    }
    return {name: Mean(value) for name, value in found.items()}


def weights(batch: Batch, logits: Tensor) -> dict[str, Mean]:
    """How a prediction weighs what the key was given, the fact "history": the probability of its last value (0), the one before (1), and so on, each
    where there is one; and the margin, by which the target's logit exceeds the highest of the others'."""
    history = batch.facts["history"]
    there = history != IGNORE
    at = history.clamp(min=0)
    mass = logits.softmax(dim=-1).gather(2, at).masked_fill(~there, 0)
    found = {f"weight_on_old_{j}": Mean(mass[:, :, j], there[:, :, j].double()) for j in range(min(CURVE, history.shape[2]))}
    target = batch.targets.clamp(min=0)[:, :, None]
    others = there & (history != batch.targets[:, :, None])
    rival = logits.gather(2, at).masked_fill(~others, float("-inf")).amax(dim=2)
    asked = others.any(dim=2)
    margin = (logits.gather(2, target)[:, :, 0] - rival).masked_fill(~asked, 0)
    return {**found, "margin": Mean(margin, asked.double())}


def recalled(batch: Batch, logits: Tensor) -> Mean:
    """Whether the target is among as many likeliest ids as its key was given values: right, too, for who knows them but not their order."""
    held = (batch.facts["history"] != IGNORE).sum(dim=2)
    above = (logits > logits.gather(2, batch.targets.clamp(min=0)[:, :, None])).sum(dim=2)
    return Mean(above < held)

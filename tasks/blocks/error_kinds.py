"""Kinds of errors: old values of the key, values of keys like it or unlike it, or values from nowhere."""

import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction, WeightedMean

__all__ = [
    "cluster_kinds",
    "error_kinds",
    "first_positions",
    "in_top_of_history",
    "near_kinds",
    "target_margin",
    "weights_on_old_values",
]


def first_positions(tokens: Tensor, size: int) -> Tensor:
    """Return where each of `size` ids first stands in tokens [B, L], L if nowhere: [B, size]."""
    B, L = tokens.shape
    return torch.full((B, size), L, device=tokens.device).scatter_reduce(
        1, tokens, torch.arange(L, device=tokens.device).expand(B, L), "amin"
    )


def error_kinds(batch: Batch, prediction: Prediction, *, seen: Tensor) -> dict[str, WeightedMean]:
    """Classify wrong answers: another value of the key (stale), of another key (cross), or neither (alien).

    `facts["history"]` [B, N, R] holds what the key was given up to there, newest first, filled up with
    `IGNORE`; the target is one of these. A stale answer is the value just before the target (previous), the
    key's first value, one between these (middle), or newer than the target. If there is only one older value,
    it counts as previous and as first.

    Args:
        batch: with the fact "history".
        prediction: the answers.
        seen: whether the answer is a value that stood in the sequence [B, N].
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
    return {name: WeightedMean(value) for name, value in found.items()}


def near_kinds(*, cross: Tensor, near: Tensor, share: float | Tensor) -> dict[str, WeightedMean]:
    """Classify answers that are values of other keys: of a key like the one that is asked for, or of another.

    near_excess: how many of them are near, over how many would be, if each were any value of another key. It
    is 1 if it does not matter how much keys are alike, and 1 / share if only those that are alike are
    confused.

    Args:
        cross: whether the answer is a value of another key [B, N].
        near: whether it is, if so, a value of a key that is like the one asked for [B, N].
        share: the share of such values among those of other keys, at each place [B, N] or everywhere.
    """
    near = cross & near
    return {
        "near": WeightedMean(near),
        "far": WeightedMean(cross & ~near),
        "near_excess": WeightedMean(near, cross * share),
    }


def cluster_kinds(
    batch: Batch, prediction: Prediction, *, cross: Tensor, others: int | Tensor
) -> dict[str, WeightedMean]:
    """Return `near_kinds` where keys of a cluster are near, and what a layer scores that finds the cluster.

    `facts["near"]` [B, N, M, R] holds what the M near keys were given up to there, newest first, filled up
    with `IGNORE`. near_stale: values of near keys that are not as old as what is asked for. cluster_chance:
    the accuracy of naming the value of any key of the cluster.

    Args:
        batch: with the fact "near", and "history" as in `error_kinds` where keys have several values.
        prediction: the answers.
        cross: whether the answer is a value of another key [B, N].
        others: how many different values of other keys stood there [B, N], or always.
    """
    own, near = batch.facts.get("history", batch.targets[:, :, None]), batch.facts["near"]
    age = (own == batch.targets[:, :, None]).long().argmax(dim=2)
    held = near.take_along_dim(age[:, :, None, None], dim=3)[:, :, :, 0]
    said = prediction.answers[:, :, None]
    its_own = (near.flatten(2)[:, :, :, None] == own[:, :, None]).any(dim=3)
    of_near = near.flatten(2).masked_fill(its_own, IGNORE).sort(dim=2).values  # IGNORE, if any, comes first
    different = (of_near[:, :, 0] != IGNORE) + (of_near.diff(dim=2) != 0).sum(dim=2)
    right = 1 + (held == batch.targets[:, :, None]).sum(dim=2)

    found = near_kinds(cross=cross, near=(near.flatten(2) == said).any(dim=2), share=different / others)
    if near.shape[3] > 1:
        older = found["near"].value & ~(held == said).any(dim=2)
        found["near_stale"] = WeightedMean(older)
    return found | {"cluster_chance": WeightedMean(right / (1 + (held != IGNORE).sum(dim=2)))}


def weights_on_old_values(history: Tensor, shares: Tensor) -> dict[str, WeightedMean]:
    """Return the weight of the last value (0), the one before (1), and so on, where there is one.

    Args:
        history: values of the key, as in `error_kinds` [B, N, R].
        shares: weight of each value in the answer [B, N, values].
    """
    there = history != IGNORE
    share = shares.gather(2, history.clamp(min=0)).masked_fill(~there, 0)
    return {
        f"weight_on_old_{j}": WeightedMean(share[:, :, j], there[:, :, j].double())
        for j in range(history.shape[2])
    }


def target_margin(batch: Batch, logits: Tensor) -> WeightedMean:
    """Return by how much the target's logit exceeds the largest of the key's other values.

    Places without other values do not count.
    """
    history = batch.facts["history"]
    others = (history != IGNORE) & (history != batch.targets[:, :, None])
    rival = logits.gather(2, history.clamp(min=0)).masked_fill(~others, float("-inf")).amax(dim=2)
    asked = others.any(dim=2)
    above = logits.gather(2, batch.targets.clamp(min=0)[:, :, None])[:, :, 0] - rival
    return WeightedMean(above.masked_fill(~asked, 0), asked.double())


def in_top_of_history(batch: Batch, logits: Tensor) -> WeightedMean:
    """Return whether the target is among the n likeliest ids, n being the number of the key's values.

    This is also right for a model that knows the values but not their order.
    """
    held = (batch.facts["history"] != IGNORE).sum(dim=2)
    above = (logits > logits.gather(2, batch.targets.clamp(min=0)[:, :, None])).sum(dim=2)
    return WeightedMean(above < held)

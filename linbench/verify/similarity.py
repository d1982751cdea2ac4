"""Recall of update rules with nothing trained, where keys come in clusters that are alike."""

from collections.abc import Sequence

import torch

from linbench.tasks.blocks.similar_vectors import similar_vectors
from linbench.verify.update_rules import RULES, Row, Rule, Trials, frequency, nearest

__all__ = ["similarity"]


def similarity(
    rules: Sequence[Rule] = RULES,
    *,
    cosines: Sequence[float] = (0.0, 0.3, 0.6, 0.9),
    clusters: Sequence[int] = (4, 16),
    pairs: int = 32,
    trials: Trials,
) -> list[Row]:
    """Return how many keys are recalled, and how often as another of its cluster, where clusters are alike.

    Two keys of a cluster have a given cosine, and keys of different clusters are at right angles, exactly
    unless there are more keys than dimensions. Keys are written once, in random order.

    Args:
        cosines: of two keys of a cluster.
        clusters: numbers of keys in a cluster.
        pairs: number of keys, a multiple of each of these.
    """
    rows: list[Row] = []
    own, v = torch.arange(pairs, device=trials.device), trials.directions("values", pairs)
    for cluster in clusters:
        for cosine in cosines:
            drawn = similar_vectors(trials.stream("keys"), pairs, trials.dim, cosine=cosine, cluster=cluster)
            k, of = drawn.vectors.to(trials.dtype), drawn.cluster
            for rule in rules:
                recalled = nearest(rule(k, v, k), v)
                near = (of.gather(1, recalled) == of) & (recalled != own)
                rows.append(
                    {
                        "rule": str(rule),
                        "dim": trials.dim,
                        "pairs": pairs,
                        "cluster": cluster,
                        "similarity": cosine,
                        "accuracy": frequency(recalled == own),
                        "near": frequency(near),
                    }
                )
    return rows

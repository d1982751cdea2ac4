"""The share of its weights that trained attention gives to the first token, beside the metrics of a test."""

from collections.abc import Sequence

import torch

from linbench.engine.batches import Streams, replica
from linbench.engine.evaluate import EvaluationResult
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic
from linbench.models.backbone import Backbone
from linbench.tasks.base import Task

EXAMPLES = 64
"""Examples of each test that shares are averaged over; a mean over tokens and heads needs few. Chosen."""

NAME = "first_token_share"
"""Metric of the mean over layers; that of layer i is `first_token_share_i`. Layers of all loops count on."""


def add_first_token_shares(
    results: Sequence[EvaluationResult], stack: Stack, cells: Sequence[Cell]
) -> Sequence[EvaluationResult]:
    """Add the shares to the metrics of every test, if the protocol asks for them, and return the results.

    Models without attention, and sequences of one token, have none.

    Args:
        results: of each replica.
        stack: the trained models.
        cells: the group's, one for each replica.
    """
    if cells[0].protocol.first_token:
        for place, task in enumerate(cells[0].tested_on):
            for result, shares in zip(results, _shares(task, stack, cells), strict=True):
                result.tests[place].metrics.update(shares)
    return results


@torch.no_grad()
def _shares(task: Task, stack: Stack, cells: Sequence[Cell]) -> list[dict[str, float]]:
    streams, protocol = Streams(task, cells), cells[0].protocol
    numbers = torch.arange(min(EXAMPLES, protocol.test_examples), device=streams.device)
    batch = streams.spread(streams.draw(numbers, "test"))
    found: list[dict[str, float]] = []
    for r, model in enumerate(stack.models):
        shares: dict[int, float] = {}
        if isinstance(model, Backbone) and batch.inputs.shape[2] > 1:
            model.eval()
            with arithmetic(protocol.precision, streams.device):
                by_layer = model.first_token_shares(replica(batch, r).inputs)
            model.train()
            shares = {layer: share.mean().item() for layer, share in by_layer.items()}
        metrics = {f"{NAME}_{layer}": share for layer, share in shares.items()}
        found.append({**metrics, NAME: sum(shares.values()) / len(shares)} if shares else {})
    return found

from collections.abc import Sequence

import pytest
import torch

from linbench.batches import draw, fresh_batches, replica
from linbench.cell import Cell
from linbench.plan import plan


def cells(seeds: Sequence[int] = (0,), size: int = 3) -> list[Cell]:
    return plan("mqar", ["deltanet"], device="cpu", seeds=seeds, settings={"protocol.batch_size": size})


@pytest.mark.parametrize("seeds", [[0], [3, 5], [7, 7, 2, 7]])
def test_every_replica_sees_its_own_stream(seeds: list[int]) -> None:
    group = [cells([seed])[0] for seed in seeds]
    index = torch.tensor([4, 0, 9])
    batch = draw(group, index, "validation")
    for r, cell in enumerate(group):
        alone = cell.task.sample(index, seed=cell.seed, split="validation")
        theirs = replica(batch, r)
        assert all(torch.equal(x, y) for x, y in zip(theirs[:3], alone[:3], strict=True))
        assert all(torch.equal(theirs.slices[name], x) for name, x in alone.slices.items())


@pytest.mark.parametrize("size", [3, 600])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
@pytest.mark.parametrize("first", [0, 600])
def test_batches_are_the_training_stream_in_order_whatever_is_drawn_at_once(size: int, seeds: list[int], first: int) -> None:
    group = cells(seeds, size)
    batches = fresh_batches(group, first=first)
    drawn = [next(batches) for _ in range(4)]
    for r, cell in enumerate(group):
        whole = cell.task.sample(torch.arange(first, first + 4 * size), seed=cell.seed, split="train")
        assert torch.equal(torch.cat([batch.inputs[r] for batch in drawn]), whole.inputs)
        assert torch.equal(torch.cat([batch.slices["distance"][r] for batch in drawn]), whole.slices["distance"])

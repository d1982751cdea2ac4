from collections.abc import Iterator, Sequence

import pytest
import torch

from linbench.engine import batches
from linbench.engine.batches import BatchFeed, Streams, replica
from linbench.experiments.cell import Cell
from linbench.tasks.base import Batch
from tests.helpers.cells import plan


def cells(seeds: Sequence[int] = (0,), size: int = 3) -> list[Cell]:
    return plan("mqar", ["deltanet"], device="cpu", seeds=seeds, settings={"protocol.batch_size": size})


def fed(group: Sequence[Cell], count: int, *, first: int = 0, epoch: int | None = None) -> Iterator[Batch]:
    feed = BatchFeed(
        Streams(group[0].task, group),
        examples=group[0].protocol.examples,
        first=first,
        last=first + count,
        epoch=epoch,
    )
    for _ in range(count):
        feed.refill()
        yield feed.batch()


@pytest.mark.parametrize("seeds", [[0], [3, 5], [7, 7, 2, 7]])
def test_every_replica_sees_its_own_stream(seeds: list[int]) -> None:
    group = [cells([seed])[0] for seed in seeds]
    index = torch.tensor([4, 0, 9])
    streams = Streams(group[0].task, group)
    batch = streams.spread(streams.draw(index, "validation"))
    for r, cell in enumerate(group):
        alone = cell.task.sample(index, seed=cell.seed, split="validation")
        theirs = replica(batch, r)
        assert all(torch.equal(x, y) for x, y in zip(theirs[:3], alone[:3], strict=True))
        assert all(torch.equal(theirs.slices[name], x) for name, x in alone.slices.items())


@pytest.mark.parametrize("at_once", [1, 500, 1 << 15])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
@pytest.mark.parametrize("first", [0, 7])
def test_batches_are_the_training_stream_in_order_whatever_is_drawn_at_once(
    at_once: int, seeds: list[int], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(batches.AT_ONCE, "cpu", at_once)
    group = cells(seeds)
    drawn = list(fed(group, 7, first=first))
    for r, cell in enumerate(group):
        whole = cell.task.sample(torch.arange(first * 3, (first + 7) * 3), seed=cell.seed, split="train")
        for name in ("inputs", "positions", "targets"):
            assert torch.equal(torch.cat([getattr(batch, name)[r] for batch in drawn]), getattr(whole, name))


def order(examples: int, count: int, seed: int = 0, *, shuffle: bool, epoch: int | None = None) -> list[int]:
    """The numbers of the examples that a cell trains on."""
    settings = {"protocol.batch_size": 4, "protocol.examples": examples, "protocol.shuffle": shuffle}
    group = plan("mqar", ["deltanet"], device="cpu", seeds=[seed], settings=settings)
    every = group[0].task.sample(torch.arange(examples), seed=seed, split="train").inputs.tolist()
    return [every.index(row) for batch in fed(group, count, epoch=epoch) for row in batch.inputs[0].tolist()]


def test_a_fixed_set_is_gone_through_again_and_again() -> None:
    assert order(6, 4, shuffle=False) == [0, 1, 2, 3, 4, 5] * 2 + [0, 1, 2, 3]


def test_a_shuffled_set_comes_whole_in_every_epoch_and_in_another_order() -> None:
    first, second = (order(12, 6, shuffle=True)[start : start + 12] for start in (0, 12))
    assert sorted(first) == sorted(second) == list(range(12))
    assert (
        len({tuple(first), tuple(second), tuple(order(12, 3, seed=1, shuffle=True)), tuple(range(12))}) == 4
    )


@pytest.mark.parametrize(("examples", "each"), [(10, [*range(10), 0, 1]), (14, list(range(12)))])
def test_with_epochs_of_their_own_batches_are_the_same_in_every_epoch(examples: int, each: list[int]) -> None:
    assert order(examples, 7, shuffle=False, epoch=3) == each * 2 + each[:4]


def test_shuffled_epochs_of_their_own_are_each_in_another_order() -> None:
    first, second = (order(14, 6, shuffle=True, epoch=3)[start : start + 12] for start in (0, 12))
    assert len(set(first)) == len(set(second)) == 12
    assert first != second

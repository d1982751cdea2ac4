import torch

from linbench.tasks.blocks.previous_occurrence import previous_occurrence


def test_by_hand() -> None:
    last, count = previous_occurrence(
        torch.tensor([[5, 7, 5, 5, -1, 7], [1, 1, 1, 1, 1, 1], [6, 5, 4, 3, 2, 1]])
    )
    assert last.tolist() == [[0, 1, 0, 2, 4, 1], [0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]
    assert count.tolist() == [[0, 0, 1, 2, 0, 1], [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0]]


def test_against_a_loop() -> None:
    ids = torch.randint(0, 20, (30, 50), generator=torch.Generator().manual_seed(0))
    last, count = previous_occurrence(ids)
    for row, found, how_many in zip(ids.tolist(), last.tolist(), count.tolist(), strict=True):
        for place, value in enumerate(row):
            before = [i for i in range(place) if row[i] == value]
            assert (found[place], how_many[place]) == (before[-1] if before else place, len(before))

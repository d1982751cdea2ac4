from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import Split
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
ALPHA = 1e-3


def drawn(split: Split, *, length: int, radices: tuple[int, ...], rows: int = 4000, seed: int = 0) -> Tensor:
    """[rows, length] words of one length."""
    stream = Stream.of(torch.arange(rows), seed=seed, split=split)
    return words(stream, torch.full((rows, 1), length), radices=radices, shortest=length, split=split)[
        :, :length
    ]


def numbers(tokens: Tensor, radices: tuple[int, ...]) -> Tensor:
    place = torch.tensor([1, *radices]).cumprod(dim=0)[: tokens.shape[1]]
    return (tokens * place).sum(dim=1)


@pytest.mark.parametrize(
    ("radices", "length", "owned"),
    [
        ((2,) * 12, 6, (32, 16, 16)),
        ((2,) * 12, 8, (128, 64, 64)),
        ((6,) * 4, 3, (108, 54, 54)),
        ((5, 3, 5, 3), 3, (39, 18, 18)),  # of 75 words three are left over
    ],
)
def test_short_words_are_divided_and_drawn_uniformly(
    chi_squared: Callable[..., float], radices: tuple[int, ...], length: int, owned: tuple[int, ...]
) -> None:
    found = []
    for split, count in zip(SPLITS, owned, strict=True):
        tokens = drawn(split, length=length, radices=radices)
        assert (tokens < torch.tensor(radices[:length])).all()
        seen, counts = numbers(tokens, radices).unique(return_counts=True)
        assert len(seen) == count
        assert chi_squared(counts, torch.full((count,), 4000 / count)) > ALPHA
        found += seen.tolist()
    assert len(set(found)) == len(found) == sum(owned)


@pytest.mark.parametrize(("length", "owned"), [(3, (8, 8, 8)), (4, (8, 4, 4)), (5, (16, 8, 8))])
def test_words_in_several_surroundings_are_divided_in_each(length: int, owned: tuple[int, ...]) -> None:
    """No two splits share a word together with its surroundings.

    From 16 words on this holds whichever split owns each, and not alike in all surroundings.
    """
    radices, found = (2,) * length, {}
    for split in SPLITS:
        stream = Stream.of(torch.arange(4000), seed=0, split=split)
        given = torch.arange(4000) % 3 - 1
        tokens = words(
            stream, torch.full((4000, 1), length), radices=radices, shortest=length, split=split, given=given
        )
        found[split] = [set(numbers(tokens[given == where], radices).tolist()) for where in (-1, 0, 1)]
        assert [len(seen) for seen in found[split]] == [owned[SPLITS.index(split)]] * 3
    if sum(owned) == 2**length:
        assert all(
            set.union(*(found[split][where] for split in SPLITS)) == set(range(2**length))
            for where in range(3)
        )
        assert not found["test"][0] == found["test"][1] == found["test"][2]


def test_letters_may_be_drawn_from_sets_that_differ_from_row_to_row() -> None:
    """Rows of the same sets have the words that they would have alone, be they divided or too many for it."""
    radices = torch.tensor([(2,) * 30, (3,) * 5 + (2,) * 25, (100,) * 30])[torch.arange(300) % 3]
    for split in SPLITS:
        for length in (5, 28):
            stream, lengths = Stream.of(torch.arange(300), seed=0, split=split), torch.full((300, 1), length)
            found = words(stream, lengths, radices=radices, shortest=length, split=split)[:, :length]
            for first in range(3):
                own = Stream(stream.key[first::3])
                alone = words(
                    own,
                    lengths[first::3],
                    radices=tuple(radices[first].tolist()),
                    shortest=length,
                    split=split,
                )[:, :length]
                assert torch.equal(found[first::3], alone)


def test_which_split_owns_a_word_does_not_depend_on_the_seed() -> None:
    trained = {
        n
        for seed in range(3)
        for n in numbers(drawn("train", length=9, radices=(2,) * 9, seed=seed), (2,) * 9).tolist()
    }
    tested = set(numbers(drawn("test", length=9, radices=(2,) * 9, seed=7), (2,) * 9).tolist())
    assert len(trained) == 256
    assert len(tested) == 128
    assert not trained & tested


def test_which_split_owns_a_word_depends_on_all_its_letters_and_its_length() -> None:
    radices = (2,) * 12
    owned = {
        length: set(numbers(drawn("test", length=length, radices=radices), radices).tolist())
        for length in (10, 11)
    }
    assert owned[10] != {n for n in owned[11] if n < 1024}
    for places in (4, 16, 32):  # no pattern of fewer letters
        assert (
            {n % places for n in owned[11]}
            == {n // (2048 // places) for n in owned[11]}
            == set(range(places))
        )


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("radices", "length"), [((2,) * 8, 5), ((2,) * 8, 1), ((6,) * 8, 2), ((3, 7), 2)])
def test_very_short_words_are_shared(
    chi_squared: Callable[..., float], split: Split, radices: tuple[int, ...], length: int
) -> None:
    counts = numbers(drawn(split, length=length, radices=radices), radices).bincount()
    expected = torch.tensor(radices[:length]).prod()
    assert chi_squared(counts, torch.full((int(expected),), 4000 / int(expected))) > ALPHA


def test_long_words_are_letters() -> None:
    """There are 2^24 of 24 bits, and those are no longer divided."""
    for length, divided in ((23, True), (24, False), (30, False)):
        stream = Stream.of(torch.arange(50), seed=0, split="train")
        letters = stream.child("letters").integers(30, below=2)
        found = words(stream, torch.full((50, 1), length), radices=(2,) * 30, shortest=length, split="train")
        assert torch.equal(found, letters) is not divided


def test_letters_are_uniform(chi_squared: Callable[..., float]) -> None:
    radices = (5, 3) * 10
    tokens = drawn("test", length=20, radices=radices, rows=5000)
    for at, radix in enumerate(radices):
        assert (
            chi_squared(tokens[:, at].bincount(minlength=radix), torch.full((radix,), 5000 / radix))
            > ALPHA / 20
        )


def test_lengths_may_differ_from_row_to_row() -> None:
    radices, rows = (3,) * 20, 300
    stream = Stream.of(torch.arange(rows), seed=0, split="train")
    length = 2 + torch.arange(rows)[:, None] % 19
    mixed = words(stream, length, radices=radices, shortest=2, split="train")
    for n in range(2, 21):
        alone = words(stream, torch.full_like(length, n), radices=radices, shortest=n, split="train")
        there = (length == n).flatten()
        assert torch.equal(mixed[there, :n], alone[there, :n])

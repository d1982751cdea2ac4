import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.tasks.random import Stream, content, inverse_powers
from tests.helpers.tasks import stream

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]

DRAWS: dict[str, Callable[[Stream], Tensor]] = {
    "bits": lambda s: s.bits(torch.arange(5)),
    "integers": lambda s: s.integers(5, below=1000),
    "exponentials": lambda s: s.exponentials(5),
    "permutation": lambda s: s.permutation(127)(torch.arange(5)),
    "permutation per row": lambda s: s.permutation(127)(torch.arange(5).repeat(len(s.key), 1)),
    "weighted_order": lambda s: s.weighted_order(torch.tensor(inverse_powers(8, -0.5))),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_row_depends_on_its_own_index_only(draw: Callable[[Stream], Tensor]) -> None:
    index = torch.tensor([0, 1, 7, 2**31, 2**40, 7])
    whole = draw(Stream.of(index, seed=3, split="train"))
    assert torch.equal(whole[2], whole[5])
    for row, number in enumerate(index):
        assert torch.equal(draw(Stream.of(number[None], seed=3, split="train"))[0], whole[row])
    order = torch.tensor([4, 0, 3, 5, 1, 2])
    assert torch.equal(draw(Stream.of(index[order], seed=3, split="train")), whole[order])
    assert torch.equal(draw(Stream.of(index.int()[:4], seed=3, split="train"))[:3], whole[:3])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_seed_split_and_name_make_streams_of_their_own(draw: Callable[[Stream], Tensor]) -> None:
    streams = {
        (seed, split): stream(50, seed=seed, split=split)
        for seed in (0, 1, 2)
        for split in ("train", "validation", "test")
    }
    draws = [draw(s) for s in streams.values()] + [
        draw(streams[0, "train"].child(name)) for name in ("keys", "values")
    ]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(draws, 2))
    assert torch.equal(
        draw(Stream.of(torch.arange(50), seed=torch.tensor(2), split="test")), draw(streams[2, "test"])
    )


def test_nothing_reads_or_moves_the_global_random_state() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = [draw(stream(9)) for draw in DRAWS.values()]
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(2)
        assert all(torch.equal(a, draw(stream(9))) for a, draw in zip(first, DRAWS.values(), strict=True))


@pytest.mark.parametrize("below", [2, 7, 64, 1000])
def test_integers_are_uniform(chi_squared: Probability, below: int) -> None:
    draws = stream(N).integers(3, below=below)
    for column in draws.unbind(1):
        assert chi_squared(column.bincount(minlength=below), torch.full((below,), N / below)) > ALPHA / 3


def test_every_bit_is_fair() -> None:
    bits = stream(N).bits(torch.arange(4))
    assert bits.min() >= 0
    assert bits.max() < 2**32
    for place in range(32):
        ones = ((bits >> place) & 1).double().mean(dim=0)
        assert ((ones - 0.5).abs() < 4.5 * 0.5 / N**0.5).all()


@pytest.mark.parametrize(
    "pair",
    [
        lambda: (stream(N).integers(1, below=8)[:-1], stream(N).integers(1, below=8)[1:]),
        lambda: stream(N).integers(2, below=8).split(1, dim=1),
        lambda: (stream(N, seed=0).integers(1, below=8), stream(N, seed=1).integers(1, below=8)),
        lambda: (stream(N, split="train").integers(1, below=8), stream(N, split="test").integers(1, below=8)),
        lambda: (stream(N).child("a").integers(1, below=8), stream(N).child("b").integers(1, below=8)),
    ],
    ids=["neighbouring examples", "neighbouring draws", "seeds", "splits", "children"],
)
def test_neighbours_are_independent(
    chi_squared: Probability, pair: Callable[[], tuple[Tensor, Tensor]]
) -> None:
    first, second = pair()
    counts = (8 * first + second).flatten().bincount(minlength=64)
    assert chi_squared(counts, torch.full((64,), len(first) / 64)) > ALPHA


@pytest.mark.parametrize("size", [*range(1, 41), 127, 4095])
def test_a_permutation_is_a_bijection(size: int) -> None:
    images = stream(20).permutation(size)(torch.arange(size))
    assert images.shape == (20, size)
    assert torch.equal(images.sort(dim=1).values, torch.arange(size).expand(20, -1))


@pytest.mark.parametrize("size", [5, 8, 24, 127])
def test_every_image_of_a_permutation_is_equally_likely(chi_squared: Probability, size: int) -> None:
    images = stream(N).permutation(size)(torch.arange(size))
    counts = (images + size * torch.arange(size)).flatten().bincount(minlength=size * size)
    # rows and columns of a sum of permutation matrices are fixed: (size - 1)^2 free cells, each of variance N
    # / (size - 1)
    shrunk = N / size + (counts - N / size) * ((size - 1) / size) ** 0.5
    assert chi_squared(shrunk, torch.full((size * size,), N / size), degrees=(size - 1) ** 2) > ALPHA


@pytest.mark.parametrize("size", [5, 8])
def test_every_ordered_pair_of_images_is_equally_likely(chi_squared: Probability, size: int) -> None:
    images = stream(N).permutation(size)(torch.arange(size))
    places = list(itertools.combinations(range(size), 2))
    different = ~torch.eye(size, dtype=torch.bool).flatten()
    for i, j in places:
        counts = (size * images[:, i] + images[:, j]).bincount(minlength=size * size)
        assert not counts[~different].any()
        cells = size * (size - 1)
        assert chi_squared(counts[different], torch.full((cells,), N / cells)) > ALPHA / len(places)


@pytest.mark.parametrize("size", [64, 127])
def test_every_difference_of_two_images_is_equally_likely(chi_squared: Probability, size: int) -> None:
    """Neighbours in a row, in a column and far apart of the rectangle that the network works on."""
    places = [(0, 1), (0, 8), (0, 16), (5, 47), (size - 2, size - 1)]
    for i, j in places:
        first, second = stream(N).permutation(size)(torch.tensor([i, j])).unbind(1)
        counts = ((second - first) % size).bincount(minlength=size)
        assert counts[0] == 0
        assert chi_squared(counts[1:], torch.full((size - 1,), N / (size - 1))) > ALPHA / len(places)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_small_permutation_is_equally_likely(chi_squared: Probability, size: int) -> None:
    images = stream(N).permutation(size)(torch.arange(size))
    names = (images * size ** torch.arange(size)).sum(dim=1)
    counts = names.unique(return_counts=True)[1]
    assert len(counts) == math.factorial(size)
    assert chi_squared(counts, torch.full((len(counts),), N / len(counts))) > ALPHA


def test_exponentials_have_the_mean_and_the_tail_of_minus_log2_of_a_uniform() -> None:
    waiting = stream(N).exponentials(10).flatten().double() / 2**26
    count = len(waiting)
    assert waiting.min() > 0
    mean = 1 / math.log(2)
    assert abs(waiting.mean() - mean) < 4 * mean / count**0.5
    assert abs(waiting.var() / mean**2 - 1) < 4 * (8 / count) ** 0.5
    for t in (0.01, 0.1, 0.5, 1, 2, 5, 10):
        tail = 2.0**-t
        assert abs((waiting > t).double().mean() - tail) < 4 * (tail * (1 - tail) / count) ** 0.5


def test_exponentials_are_the_logarithm_of_the_bits_to_the_last_place_but_two() -> None:
    counter = torch.arange(10)
    uniform = (2 * stream(2000).bits(counter) + 1).double() / 2**33
    exact = -uniform.log2() * 2**26
    assert (stream(2000).exponentials(10) - exact).abs().max() < 3


@pytest.mark.parametrize("taken", [1, 2, 4])
def test_weighted_order_draws_one_by_one_without_putting_back(chi_squared: Probability, taken: int) -> None:
    weights = [1, 2, 3, 6]
    orders = stream(N).weighted_order(torch.tensor([6 * 2**14 // w for w in weights]))
    counts, expected = [], []
    for wanted in itertools.permutations(range(4), taken):
        probability, left = 1.0, sum(weights)
        for item in wanted:
            probability *= weights[item] / left
            left -= weights[item]
        expected.append(N * probability)
        counts.append(int((orders[:, :taken] == torch.tensor(wanted)).all(dim=1).sum()))
    assert chi_squared(torch.tensor(counts), torch.tensor(expected)) > ALPHA


def test_weighted_order_is_a_permutation() -> None:
    orders = stream(100).weighted_order(torch.tensor(inverse_powers(31, -0.99)))
    assert torch.equal(orders.sort(dim=1).values, torch.arange(31).expand(100, -1))


@pytest.mark.parametrize(
    ("count", "exponent", "expected"),
    [
        (1, -0.5, [1]),
        (4, -1, [1, 2, 3, 4]),
        (4, 0, [1, 1, 1, 1]),
        (4, 1, [4, 2, 4 / 3, 1]),
        (4, 0.5, [2, 2**0.5, 2 / 3**0.5, 1]),
        (3, -0.99, [1, 2**0.99, 3**0.99]),
    ],
)
def test_inverse_powers_are_rounded_to_the_last_place(
    count: int, exponent: float, expected: list[float]
) -> None:
    assert inverse_powers(count, exponent) == tuple(round(2**14 * x) for x in expected)


def test_contents_tell_rows_apart() -> None:
    """All words of 16 bits, and of as many numbers that are alike but for their order."""
    words = torch.arange(1 << 16)[:, None] >> torch.arange(16) & 1
    assert len(content(words).unique()) == 1 << 16
    orders = torch.tensor(list(itertools.permutations(range(-3, 4))))
    assert len(content(orders).unique()) == len(orders)
    assert torch.equal(content(orders[:5].int()), content(orders)[:5])
    halves = content(words).bitwise_and(1).double().mean()
    assert abs(halves - 0.5) < 4 * (0.25 / (1 << 16)) ** 0.5

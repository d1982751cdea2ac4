from collections.abc import Callable

import pytest
import torch

from linbench.tasks.blocks.sizes import draw_size, shuffle_first, size_shares
from tests.helpers.tasks import stream

ALPHA = 1e-3
N = 20_000


@pytest.mark.parametrize(
    ("most", "mean", "smallest", "largest"),
    [(375, 109.5, 0.0155, 0.0009), (125, 42.3, 0.0306, 0.0032), (16, 8.2, 0.124, 0.044)],
)
def test_shares_are_those_of_the_paper(most: int, mean: float, smallest: float, largest: float) -> None:
    shares = size_shares(most, "train")
    assert sum(n * share for n, share in shares) == pytest.approx(mean, abs=0.06)
    assert shares[0] == (3, pytest.approx(smallest, abs=5e-4))
    assert shares[-1] == (most, pytest.approx(largest, abs=5e-4))
    assert sum(share for _, share in shares) == pytest.approx(1)


def test_sizes_are_drawn_with_their_shares(chi_squared: Callable[..., float]) -> None:
    drawn = draw_size(stream(N), 9, "train")
    assert drawn.shape == (N, 1)
    expected = torch.tensor([N * share for _, share in size_shares(9, "train")])
    assert chi_squared(drawn.flatten().bincount(minlength=10)[3:], expected) > ALPHA


@pytest.mark.parametrize("split", ["validation", "test"])
def test_tests_have_the_largest_size_alone(split: str) -> None:
    assert (draw_size(stream(50), 9, split) == 9).all()  # type: ignore[arg-type]


def test_the_first_are_shuffled_before_the_others(chi_squared: Callable[..., float]) -> None:
    order = shuffle_first(stream(N), torch.full((N, 1), 3), 5)
    assert order.sort(dim=1).values.equal(torch.arange(5).expand(N, 5))
    assert (order[:, 3:] >= 3).all()
    orders = order[:, 0] * 3 + order[:, 1]
    counts = orders.bincount(minlength=9)[[1, 2, 3, 5, 6, 7]]
    assert chi_squared(counts, torch.full((6,), N / 6)) > ALPHA

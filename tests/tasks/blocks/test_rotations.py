from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.tasks.blocks.rotations import orthonormal, rotate
from tests.helpers.tasks import stream

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


def normals(examples: int, count: int, dim: int) -> Tensor:
    return stream(examples).normals(count * dim).double().view(examples, count, dim)


@pytest.mark.parametrize(("count", "dim"), [(1, 1), (1, 5), (3, 3), (4, 9), (64, 64)])
def test_vectors_are_orthonormal(count: int, dim: int) -> None:
    vectors = orthonormal(normals(20, count, dim))
    assert vectors.shape == (20, count, dim)
    one = torch.eye(count, dtype=torch.float64).expand(20, -1, -1)
    assert torch.allclose(vectors @ vectors.mT, one, rtol=0, atol=1e-12)


def test_the_first_vector_has_the_direction_that_was_drawn() -> None:
    drawn = normals(20, 3, 5)
    assert torch.allclose(orthonormal(drawn)[:, 0], torch.nn.functional.normalize(drawn[:, 0], dim=1))


def test_every_vector_has_any_direction(chi_squared: Probability) -> None:
    """Each coordinate of a random direction in three dimensions is uniform in [-1, 1].

    So is that of any fixed mixture of the vectors, if they are drawn independently of each other but for
    their right angles; and half of all triples are left-handed.
    """
    vectors = orthonormal(normals(N, 3, 3))
    assert vectors.mean(dim=0).abs().max() < 4 / (3 * N) ** 0.5
    mixture = torch.tensor([2.0, -1.0, 2.0], dtype=torch.float64) / 3
    for direction in (*vectors.unbind(1), (mixture[:, None] * vectors).sum(dim=1)):
        for coordinate in direction.unbind(1):
            counts = ((coordinate + 1) * 10).long().clamp(max=19).bincount(minlength=20)
            assert chi_squared(counts, torch.full((20,), N / 20)) > ALPHA
    handed = (torch.linalg.det(vectors) > 0).long().bincount(minlength=2)
    assert chi_squared(handed, torch.full((2,), N / 2)) > ALPHA


def test_a_rotation_keeps_products_and_takes_a_vector_anywhere() -> None:
    x = normals(1, 2, 6).expand(N, 2, 6)
    turned = rotate(x, normals(N, 6, 6))
    assert torch.allclose(turned @ turned.mT, x @ x.mT)
    assert turned.mean(dim=0).abs().max() < 4.5 * (float(x.square().sum(dim=2).max()) / 6 / N) ** 0.5

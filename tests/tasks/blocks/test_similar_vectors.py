from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.tasks.blocks.similar_vectors import around, similar_vectors
from tests.helpers.tasks import stream

N = 4000
ALPHA = 1e-3


def gram(cluster: Tensor, cosine: float) -> Tensor:
    """Return the cosines that are asked for of vectors of these clusters [B, N]: [B, N, N]."""
    same = (cluster[:, :, None] == cluster[:, None]).double()
    return cosine * same + (1 - cosine) * torch.eye(cluster.shape[1], dtype=torch.float64)


@pytest.mark.parametrize("cosine", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize(
    ("count", "dim", "size"), [(16, 64, 4), (16, 16, 4), (6, 7, 3), (8, 9, 8), (4, 4, 1)]
)
def test_the_gram_matrix_is_exact(count: int, dim: int, size: int, cosine: float) -> None:
    vectors, cluster = similar_vectors(stream(20), count, dim, cosine=cosine, cluster=size)
    assert vectors.dtype == torch.float64
    assert all(row.bincount().tolist() == [size] * (count // size) for row in cluster)
    assert torch.allclose(vectors @ vectors.mT, gram(cluster, cosine), rtol=0, atol=1e-12)


def test_a_vector_has_any_direction() -> None:
    """A coordinate of a random direction in 6 dimensions has mean 0 and variance 1 / 6.

    Its square has variance 2 (d - 1) / (d^2 (d + 2)).
    """
    vectors, _ = similar_vectors(stream(N), 4, 6, cosine=0.6, cluster=2)
    assert vectors.mean(dim=0).abs().max() < 4.5 * (1 / 6 / N) ** 0.5
    assert (vectors.square().mean(dim=0) - 1 / 6).abs().max() < 4.5 * (10 / (36 * 8) / N) ** 0.5


def test_the_vectors_of_a_cluster_stand_anywhere(chi_squared: Callable[..., float]) -> None:
    _, cluster = similar_vectors(stream(N), 4, 4, cosine=0.5, cluster=2)
    mate = (cluster[:, 1:] == cluster[:, :1]).byte().argmax(dim=1)
    assert chi_squared(mate.bincount(minlength=3), torch.full((3,), N / 3)) > ALPHA


def test_no_linear_map_of_one_example_makes_vectors_of_another_less_alike() -> None:
    """The map that makes the vectors of one example orthogonal leaves those of others as they were."""
    vectors, cluster = similar_vectors(stream(200), 8, 8, cosine=0.9, cluster=4)
    undone = vectors @ torch.linalg.inv(vectors[0])
    assert torch.allclose(undone[0], torch.eye(8, dtype=torch.float64))
    directions = torch.nn.functional.normalize(undone[1:], dim=2)
    same = gram(cluster, 0.5)[1:] == 0.5
    assert float((directions @ directions.mT)[same].mean()) > 0.85


def test_more_vectors_than_dimensions_have_the_cosines_on_average() -> None:
    """Across clusters a cosine differs from 0 by 1 / sqrt(dim)."""
    vectors, cluster = similar_vectors(stream(N), 12, 8, cosine=0.6, cluster=4)
    expected, found = gram(cluster, 0.6), vectors @ vectors.mT
    assert torch.allclose(found.diagonal(dim1=1, dim2=2), torch.ones((), dtype=torch.float64))
    for cosine in (0.0, 0.6):
        own = found[expected == cosine]
        assert float(own.mean()) == pytest.approx(cosine, abs=0.005)
    assert float(found[expected == 0].square().mean()) == pytest.approx(1 / 8, rel=0.05)


def test_vectors_around_a_centre_have_the_cosine_with_what_they_share_alone() -> None:
    centre = torch.tensor([0.0, 1.0, 0.0])
    vectors = around(centre, torch.tensor([[3.0, 5.0, 4.0], [2.0, -1.0, 0.0]]), 0.64)
    assert torch.allclose(vectors, torch.tensor([[0.36, 0.8, 0.48], [0.6, 0.8, 0.0]]))

import pytest
import torch
from torch import Tensor

from linbench.tasks.blocks.similar_vectors import around, similar_vectors
from tests.helpers.tasks import stream

N = 4000


def gram(count: int, cosine: float, cluster: int) -> Tensor:
    """Return the matrix of cosines that is asked for, entry by entry."""
    rows = [
        [1.0 if i == j else cosine if i // cluster == j // cluster else 0.0 for j in range(count)]
        for i in range(count)
    ]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("cosine", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize(
    ("count", "dim", "cluster"), [(16, 64, 4), (16, 16, 4), (6, 7, 3), (8, 9, 8), (4, 4, 1)]
)
def test_the_gram_matrix_is_exact(count: int, dim: int, cluster: int, cosine: float) -> None:
    vectors = similar_vectors(stream(20), count, dim, cosine=cosine, cluster=cluster)
    assert vectors.dtype == torch.float64
    expected = gram(count, cosine, cluster).expand(20, -1, -1)
    assert torch.allclose(vectors @ vectors.mT, expected, rtol=0, atol=1e-12)


def test_a_vector_has_any_direction() -> None:
    """Of a random direction in 6 dimensions each coordinate has mean 0 and variance 1 / 6.

    Its square has variance 2 (d - 1) / (d^2 (d + 2)).
    """
    vectors = similar_vectors(stream(N), 4, 6, cosine=0.6, cluster=2)
    assert vectors.mean(dim=0).abs().max() < 4.5 * (1 / 6 / N) ** 0.5
    assert (vectors.square().mean(dim=0) - 1 / 6).abs().max() < 4.5 * (10 / (36 * 8) / N) ** 0.5


def test_no_linear_map_of_one_example_makes_vectors_of_another_less_alike() -> None:
    """The map that makes the vectors of one example orthogonal leaves those of others as they were."""
    vectors = similar_vectors(stream(200), 8, 8, cosine=0.9, cluster=4)
    undone = vectors @ torch.linalg.inv(vectors[0])
    assert torch.allclose(undone[0], torch.eye(8, dtype=torch.float64))
    directions = torch.nn.functional.normalize(undone[1:], dim=2)
    cosines = (directions @ directions.mT)[:, 0, 1:4]
    assert float(cosines.mean()) > 0.85


def test_more_vectors_than_dimensions_have_the_cosines_on_average() -> None:
    """Across clusters a cosine differs from 0 by 1 / sqrt(dim)."""
    vectors = similar_vectors(stream(N), 12, 8, cosine=0.6, cluster=4)
    cosines = vectors @ vectors.mT
    assert torch.allclose(cosines.diagonal(dim1=1, dim2=2), torch.ones((), dtype=torch.float64))
    assert (cosines.mean(dim=0) - gram(12, 0.6, 4)).abs().max() < 4.5 * (1 / 8 / N) ** 0.5
    assert float(cosines[:, 0, 4:].square().mean()) == pytest.approx(1 / 8, rel=0.05)


def test_vectors_around_a_centre_have_the_cosine_with_what_they_share_alone() -> None:
    centre = torch.tensor([0.0, 1.0, 0.0])
    vectors = around(centre, torch.tensor([[3.0, 5.0, 4.0], [2.0, -1.0, 0.0]]), 0.64)
    assert torch.allclose(vectors, torch.tensor([[0.36, 0.8, 0.48], [0.6, 0.8, 0.0]]))

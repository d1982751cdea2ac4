import pytest
import torch

from linbench.tasks.blocks.estimators import Observations, averaging, least_mean_squares, nearest, ridge

POINTS = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]], dtype=torch.float64)
TOLD = Observations(POINTS, torch.tensor([[3.0, 4.0, 7.0]], dtype=torch.float64))


def test_averaging_by_hand() -> None:
    """Means of y x before: none, (3, 0), (3, 8) / 2."""
    assert averaging(TOLD).tolist() == [[0.0, 0.0, 1.5 + 4.0]]


def test_least_mean_squares_by_hand() -> None:
    assert least_mean_squares(TOLD).tolist() == [[0.0, 0.0, 5.0]]  # w goes to (3, 0), then to (3, 2)
    assert least_mean_squares(TOLD, beta=0.5).tolist() == [[0.0, 0.0, 2.5]]


def test_ridge_by_hand() -> None:
    assert ridge(TOLD, penalty=1.0)[0].tolist() == pytest.approx([0.0, 0.0, 3 / 2 + 8 / 5])
    assert ridge(TOLD, penalty=1.0, anew=1)[0].tolist() == pytest.approx([0.0, 0.0, 8 / 5])


def test_nearest_points_by_hand() -> None:
    """Points 0, 5, 1, 4, 2 with values 10, 20, 30, 40, 50."""
    told = Observations(
        torch.tensor([0.0, 5.0, 1.0, 4.1, 2.0], dtype=torch.float64)[None, :, None],
        torch.tensor([[10.0, 20.0, 30.0, 40.0, 50.0]], dtype=torch.float64),
    )
    assert nearest(told, count=3)[0].tolist() == pytest.approx([0.0, 10.0, 15.0, 20.0, (30 + 10 + 40) / 3])
    assert nearest(told, count=1)[0].tolist() == pytest.approx([0.0, 10.0, 10.0, 20.0, 30.0])
    assert nearest(told, count=9)[0].tolist() == pytest.approx([0.0, 10.0, 15.0, 20.0, 25.0])


def test_ridge_minimises_its_objective() -> None:
    told = Observations(
        *(
            torch.randn(20, 6, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            for size in ((3,), ())
        )
    )
    x, y, penalty = told.x[:, :5], told.y[:, :5], 0.7
    w = torch.linalg.inv(x.mT @ x + penalty * torch.eye(3)) @ x.mT @ y[:, :, None]
    assert torch.allclose(ridge(told, penalty=penalty)[:, 5], (told.x[:, 5:] @ w)[:, 0, 0])

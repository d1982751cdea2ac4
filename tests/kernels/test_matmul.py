"""Sums of products over many rows."""

import pytest
import torch
from torch import Tensor

from linbench.kernels.matmul import split_k_matmul

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(
        DEVICE, dtype
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (1, 1),
        (63, 1),
        (1022, 1),
        (1024, 2),
        (1026, 2),
        (1025, 1),
        (4096, 8),
        (4100, 4),
        (6144, 8),
        (1 << 18, 256),
    ],
)
def test_the_sum_is_that_of_all_rows(
    rows: int, parts: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[int] = []
    product = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda x, y: cut.append(len(x)) or product(x, y))
    dy, x = draw(2, rows, 3, dtype=dtype), draw(2, rows, 5, dtype=dtype)
    found = split_k_matmul(dy, x)
    assert cut == [2 * parts]
    assert found.dtype == (torch.float32 if dtype == torch.bfloat16 and parts > 1 else dtype)
    exact = torch.einsum("rno,rnd->rod", dy.double(), x.double())
    assert (
        float((found - exact).norm() / exact.norm())
        < {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    )

"""Products of stacked matrices, and sums of them over many rows."""

import pytest
import torch
from torch import Tensor

from linbench.kernels.matmul import product, sum_of_products
from linbench.kernels.operators import INTERPRETED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

needs_triton = pytest.mark.skipif(
    not INTERPRETED and DEVICE == "cpu", reason="needs Triton's interpreter or a GPU"
)
SIZES = [
    (1, 1, 1, 1),
    (2, 65, 63, 5),
    (3, 130, 700, 70),
    (2, 16, 64, 64),
    (1, 33, 1100, 100),
    (2, 7, 16, 257),
]


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(
        DEVICE, dtype
    )


def error(given: Tensor, exact: Tensor) -> float:
    return float((given.double() - exact).abs().max() / exact.abs().max())


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
    bmm = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda x, y: cut.append(len(x)) or bmm(x, y))
    dy, x = draw(2, rows, 3, dtype=dtype), draw(2, rows, 5, dtype=dtype)
    found = sum_of_products(dy, x, backend="torch")
    assert cut == [2 * parts]
    assert found.dtype == (torch.float32 if dtype == torch.bfloat16 and parts > 1 else dtype)
    exact = torch.einsum("rno,rnd->rod", dy.double(), x.double())
    assert (
        float((found - exact).norm() / exact.norm())
        < {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    )


@pytest.mark.interpreter
@needs_triton
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_three_products_of_tf32_keep_22_bits(size: tuple[int, ...], turned: tuple[bool, bool]) -> None:
    """Whatever the order in memory, and with what is read of empty memory turned to NaN."""
    replicas, rows, summands, columns = size
    a, b = (
        draw(replicas, rows, summands, dtype=torch.float64),
        draw(replicas, summands, columns, dtype=torch.float64),
    )
    a, b = (poisoned(x.float(), turn) for x, turn in zip((a, b), turned, strict=True))
    exact = a.double() @ b.double()
    found = product(a, b, backend="triton")
    assert found.is_contiguous()
    assert error(found, exact) < 1e-6
    onto = draw(replicas, rows, columns, dtype=torch.float32)
    added = product(a, b, onto=onto.clone(), backend="triton")
    assert error(added, exact + onto.double()) < 1e-6


def poisoned(x: Tensor, turn: bool) -> Tensor:
    """The numbers of x inside larger memory of NaN, with rows or columns side by side."""
    held = x.mT if turn else x
    room = torch.full((held.shape[0], held.shape[1] + 3, held.shape[2] + 5), float("nan"), device=x.device)
    inside = room[:, 1:-2, 2:-3]
    inside.copy_(held)
    return inside.mT if turn else inside


@pytest.mark.interpreter
@needs_triton
@pytest.mark.parametrize("rows", [1, 63, 65, 100, 4096])
def test_triton_sums_over_all_rows(rows: int) -> None:
    dy, x = draw(2, rows, 33, dtype=torch.float32), draw(2, rows, 17, dtype=torch.float32)
    exact = torch.einsum("rno,rnd->rod", dy.double(), x.double())
    assert error(sum_of_products(dy, x, backend="triton"), exact) < 1e-6


@pytest.mark.interpreter
@needs_triton
def test_a_number_that_is_not_finite_stays_in_its_row_and_column() -> None:
    a, b = draw(1, 40, 40, dtype=torch.float32), draw(1, 40, 40, dtype=torch.float32)
    a[0, 3, 5] = float("nan")
    b[0, 7, 9] = float("nan")
    found = product(a, b, backend="triton").isfinite()
    assert not found[0, 3].any()
    assert not found[0, :, 9].any()
    found[0, 3], found[0, :, 9] = True, True
    assert found.all()


@pytest.mark.interpreter
@needs_triton
def test_replicas_under_vmap_are_more_of_the_batch() -> None:
    a, b = draw(3, 2, 5, 7, dtype=torch.float32), draw(3, 2, 7, 4, dtype=torch.float32)
    stacked = torch.vmap(product)(a, b)
    assert torch.equal(stacked, product(a.flatten(0, 1), b.flatten(0, 1)).view_as(stacked))


@pytest.mark.interpreter
@needs_triton
def test_where_gradients_are_recorded_torch_multiplies() -> None:
    """So that a second derivative goes through a backward pass that multiplies."""
    a, b = draw(1, 256, 256, dtype=torch.float32), draw(1, 256, 256, dtype=torch.float32)
    tracked = a.clone().requires_grad_()
    product(tracked, b).sum().backward()
    assert tracked.grad is not None
    assert error(tracked.grad, (torch.ones_like(a).double() @ b.double().mT)) < 1e-5
    with torch.no_grad():
        assert error(product(tracked, b), a.double() @ b.double()) < 1e-6


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 4)),
        (torch.zeros(2, 3, 4), torch.zeros(2, 5, 4)),
        (torch.zeros(2, 3, 4), torch.zeros(1, 4, 4)),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, 4, dtype=torch.float64)),
    ],
)
def test_what_does_not_fit_together_is_refused(a: Tensor, b: Tensor) -> None:
    with pytest.raises(ValueError, match=r"a \[R, M, K\] and b \[R, K, N\] of one dtype, not"):
        product(a, b)

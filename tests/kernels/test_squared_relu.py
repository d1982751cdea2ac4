"""Attention with the squares of positive scores as weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention

B, H, K, V = 2, 4, 8, 5
SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0], dtype=torch.float64)
Error = Callable[[Tensor, Tensor], float]


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def with_gradients(inputs: list[Tensor], backend: str, **options: Any) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    o = attention(leaves[0], leaves[1], leaves[2], weigh="squared_relu", backend=backend, **options)
    weight = torch.randn(o.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return [o.detach(), *torch.autograd.grad((o * weight).sum(), leaves)]


@pytest.mark.parametrize("length", [1, 2, 65])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("slopes", [None, SLOPES], ids=["no slopes", "slopes"])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_outputs_and_gradients_equal_the_reference(
    generator: torch.Generator,
    relative_error: Error,
    length: int,
    window: int | None,
    slopes: Tensor | None,
    key_heads: int,
) -> None:
    inputs = [
        drawn(generator, B, length, heads, dim) for heads, dim in ((H, K), (key_heads, K), (key_heads, V))
    ]
    options = {"window": window, "slopes": slopes}
    found, expected = (with_gradients(inputs, backend, **options) for backend in ("dense", "reference"))
    for one, other in zip(found, expected, strict=True):
        assert relative_error(one, other) < 1e-10


def test_the_reference_is_the_formula(generator: torch.Generator) -> None:
    q, k, v = (drawn(generator, 1, 4, 1, 3) for _ in range(3))
    o = attention(q, k, v, scale=0.5, weigh="squared_relu", backend="reference")
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for i in range(4):
        for j in range(i + 1):
            score = max(0.0, 0.5 * float(q[0, i, 0] @ k[0, j, 0]))
            expected[i] += score**2 * v[0, j, 0] / (i + 1)
    torch.testing.assert_close(o[0, :, 0], expected)


@pytest.mark.parametrize("backend", ["dense", "reference"])
@pytest.mark.parametrize("window", [None, 3])
def test_empty_places_count_for_nothing_and_order_does_not_matter(
    generator: torch.Generator, relative_error: Error, backend: str, window: int | None
) -> None:
    q, k, v = (drawn(generator, 1, 7, H, dim) for dim in (K, K, V))
    expected = attention(q, k, v, window=window, weigh="squared_relu", backend=backend)[:, 4:]
    there = torch.tensor([[5, EMPTY, 0, 3, 6, EMPTY, 1, 4, 2]])
    empty = (there == EMPTY)[:, :, None, None]
    keys, values = (x[:, there[0].clamp(min=0)].masked_fill(empty, float("nan")) for x in (k, v))
    o = attention(
        q[:, 4:], keys, values, query_positions=torch.arange(4, 7)[None], key_positions=there,
        window=window, weigh="squared_relu", backend=backend,
    )  # fmt: skip
    assert relative_error(o, expected) < 1e-12


def test_half_precision_squares_large_scores(generator: torch.Generator) -> None:
    """600 squared is more than float16 holds, its mean with others is not."""
    q = torch.full((1, 100, 1, 4), 12.25).half()
    v = torch.ones(1, 100, 1, 4).half()
    k = torch.zeros(1, 100, 1, 4).half()
    k[:, 0] = 12.25
    o = attention(q, k, v, scale=1.0, weigh="squared_relu")
    assert o[0, -1].tolist() == [[pytest.approx((4 * 12.25**2) ** 2 / 100, rel=1e-2)] * 4]

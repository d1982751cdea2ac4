"""Products of several maps at a time are those of each alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from linbench.models.blocks import linear as what
from linbench.models.blocks.linear import Affine, Linear, SharedInput, linear

SIZES = [[24], [3], [24, 2, 40, 5], [2, 1], [17, 16]]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what, "_runs_on_gpu", lambda x: True)


def results(function: Callable[..., list[Tensor]], x: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """Outputs and the gradients of a loss that weighs every number of them."""
    leaves = [given.clone().requires_grad_() for given in (x, *weights)]
    outputs = function(leaves[0], leaves[1:])
    loss = sum(
        (y.double() * torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view(y.shape).sin()).sum()
        for y in outputs
    )
    return [*(y.detach() for y in outputs), *torch.autograd.grad(loss, leaves)]


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(
        dtype
    )


def each_alone(x: Tensor, weights: list[Tensor]) -> list[Tensor]:
    return [F.linear(x, weight) for weight in weights]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (8, 512), (2, 2049)])
def test_outputs_and_gradients_are_those_of_each_map(sizes: list[int], shape: tuple[int, int]) -> None:
    x, weights = draw(*shape, 12), [draw(size, 12) for size in sizes]
    for given, expected in zip(results(linear, x, weights), results(each_alone, x, weights), strict=True):
        assert given.shape == expected.shape
        assert torch.allclose(given, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("shared", [False, True])
def test_replicas_stack(sizes: list[int], shared: bool) -> None:
    x, weights = draw(*([] if shared else [3]), 2, 600, 12), [draw(3, size, 12) for size in sizes]

    def stacked(x: Tensor, weights: list[Tensor]) -> list[Tensor]:
        return torch.vmap(linear, in_dims=(None if shared else 0, 0))(x, weights)

    def one_by_one(x: Tensor, weights: list[Tensor]) -> list[Tensor]:
        found = [linear(x if shared else x[r], [weight[r] for weight in weights]) for r in range(3)]
        return [torch.stack(ys) for ys in zip(*found, strict=True)]

    for given, expected in zip(results(stacked, x, weights), results(one_by_one, x, weights), strict=True):
        assert torch.allclose(given, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_affine_map_stacks(bias: bool, dtype: torch.dtype) -> None:
    maps, x = [Affine(12, 5, bias=bias) for _ in range(3)], draw(3, 2, 600, 12, dtype=dtype)
    for one in maps:
        one.to(dtype)
    names = [name for name, _ in maps[0].named_parameters()]
    own = [torch.stack([one.get_parameter(name).detach() for one in maps]) for name in names]

    def stacked(x: Tensor, weights: list[Tensor]) -> list[Tensor]:
        return [
            torch.vmap(lambda each, x: torch.func.functional_call(maps[0], each, x))(
                dict(zip(names, weights, strict=True)), x
            )
        ]

    def one_by_one(x: Tensor, weights: list[Tensor]) -> list[Tensor]:
        return [torch.stack([F.linear(x[r], *(weight[r] for weight in weights)) for r in range(3)])]

    exact = results(one_by_one, x.double(), [weight.double() for weight in own])
    for given, expected in zip(results(stacked, x, own), exact, strict=True):
        assert given.dtype == dtype
        assert float((given - expected).norm() / expected.norm()) < (1e-6 if dtype == torch.float64 else 1e-2)


def test_sums_over_many_rows_are_taken_in_parts_and_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    product = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda x, y: seen.append(tuple(x.shape)) or product(x, y))
    x, weight = draw(8192, 16, dtype=torch.bfloat16), draw(32, 16, dtype=torch.float32)
    gradient = results(linear, x, [weight])[-1]
    assert seen[-1] == (16, 32, 512)
    assert gradient.dtype == torch.float32
    exact = results(each_alone, x.double(), [weight.to(torch.bfloat16).double()])[-1]
    assert float((gradient - exact).norm() / exact.norm()) < 4e-3


def test_autocast_decides_the_dtype() -> None:
    x, weights = draw(5, 12, dtype=torch.float32), [draw(size, 12, dtype=torch.float32) for size in (20, 3)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = results(linear, x, weights)
    assert [y.dtype for y in found] == [torch.bfloat16] * 2 + [torch.float32] * 3
    for given, expected in zip(found, results(each_alone, x, weights), strict=True):
        assert float((given - expected).norm() / expected.norm()) < 8e-3


def test_a_map_that_nobody_uses_has_no_gradient() -> None:
    x, used, unused = (
        draw(4, 12).requires_grad_(),
        draw(20, 12).requires_grad_(),
        draw(30, 12).requires_grad_(),
    )
    y, _ = linear(x, [used, unused])
    dx, dused, dunused = torch.autograd.grad(y.square().sum(), [x, used, unused], allow_unused=True)
    expected = torch.autograd.grad(F.linear(x, used).square().sum(), [x, used])
    assert torch.allclose(dx, expected[0])
    assert torch.allclose(dused, expected[1])
    assert dunused is None


def test_what_is_shared_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = [Linear(12, 20), Linear(12, 2), Linear(12, 3)]
    calls: list[int] = []
    monkeypatch.setattr(what, "linear", lambda x, weights: calls.append(len(weights)) or linear(x, weights))
    x = draw(4, 12, dtype=torch.float32)
    given = SharedInput(x, maps)
    assert all(torch.allclose(one(given), F.linear(x, one.weight), atol=1e-6) for one in maps)
    assert calls == [3]


class Casts(TorchDispatchMode):
    """Counts the casts to bfloat16 inside it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.count += func is torch.ops.aten._to_copy.default and kwargs.get("dtype") == torch.bfloat16
        return func(*args, **kwargs)


@pytest.mark.parametrize("stacked", [False, True])
def test_each_factor_is_cast_once(stacked: bool) -> None:
    shape = (3,) if stacked else ()
    x = draw(*shape, 5, 12, dtype=torch.float32).requires_grad_()
    weights = [draw(*shape, size, 12, dtype=torch.float32).requires_grad_() for size in (20, 24)]
    with torch.autocast("cpu", dtype=torch.bfloat16), Casts() as forward:
        outputs = torch.vmap(linear)(x, weights) if stacked else linear(x, weights)
    loss = torch.stack([y.sum() for y in outputs]).sum()
    with Casts() as backward:
        torch.autograd.grad(loss, [x, *weights])
    assert (forward.count, backward.count) == (3, 0)


def test_gradients_of_gradients_go_through_what_was_cast() -> None:
    def squared(function: Callable[..., list[Tensor]]) -> Tensor:
        x, weight = draw(5, 12, dtype=torch.float32), draw(20, 12, dtype=torch.float32).requires_grad_()
        x.requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (y,) = function(x, [weight])
        (dx,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), weight)[0]

    given, expected = squared(linear), squared(each_alone)
    assert float((given - expected).norm() / expected.norm()) < 2e-2

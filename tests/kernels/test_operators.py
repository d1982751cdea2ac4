"""Operators of torch: called by themselves as functions, and by name where something of torch's looks on."""

from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.operators import Operator, operator

NAMES = (f"doubled_{i}" for i in count())


def doubled(x: Tensor, times: int) -> Tensor:
    return times * x


def made(*, differentiable: bool = True) -> Operator:
    """An operator of a name of its own: torch knows a name once."""
    made = operator(next(NAMES), differentiable=differentiable)(doubled)
    made.register_fake(lambda x, times: torch.empty_like(x))
    if differentiable:

        def save(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.times = inputs[1]

        made.register_autograd(lambda ctx, dy: (ctx.times * dy, None), setup_context=save)
    return made


class Heard(TorchDispatchMode):
    """Remembers which of ours are called."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names = [*getattr(self, "names", []), str(func)]
        return func(*args, **(kwargs or {}))


def test_alone_and_by_name_it_gives_the_same_and_the_same_gradient() -> None:
    op = made()
    x = torch.randn(3, requires_grad=True)
    for call in (op, op.packet):
        y = call(x, 2)
        assert torch.equal(y, 2 * x)
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), 2.0))


@pytest.mark.parametrize("wanted", [False, True])
def test_who_looks_on_hears_its_name(wanted: bool) -> None:
    op = made()
    with Heard() as heard:
        op(torch.randn(3, requires_grad=wanted), 2)
    assert f"{op.name.replace('::', '.')}.default" in heard.names


def test_without_derivative_it_says_so_and_not_before_one_is_asked_for() -> None:
    op = made(differentiable=False)
    assert not op(torch.ones(3), 2).requires_grad
    y = op(torch.ones(3, requires_grad=True), 2)
    with pytest.raises(RuntimeError, match="has no derivative"):
        y.sum().backward()


def test_a_gradient_has_no_derivative_and_says_so() -> None:
    q, k, v = torch.randn(3, 1, 5, 1, 4, requires_grad=True)
    o, _ = matrix_state(q, k, v, backend="chunkwise")
    (dq,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="a gradient of linbench has no derivative"):
        dq.sum().backward()


@pytest.mark.slow
def test_compiled_it_is_one_operator_of_the_graph() -> None:
    op, seen = made(), []

    def remember(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compile(lambda x: op(x, 2), backend=remember, fullgraph=True)(torch.ones(3))
    assert any(op.name.partition("::")[2] in name for name in seen)

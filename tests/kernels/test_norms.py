import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.norms import add_rms_norm, l2_norm, layer_norm, rms_norm
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, error, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
LIMITS = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}
ACTIVATIONS = [None, "swish", "sigmoid"]
EPS = 1e-5

Draw = Callable[..., Tensor]
Norm = Callable[..., Tensor]


@pytest.fixture
def draw(generator: torch.Generator) -> Draw:
    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

    return normal


def reference_l2(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def reference_rms(
    x: Tensor, weight: Tensor, gate: Tensor | None = None, activation: str | None = None
) -> Tensor:
    y = x / (x.square().sum(-1, keepdim=True) / x.shape[-1] + EPS).sqrt() * weight
    if gate is not None:
        y = y / (1 + torch.exp(-gate)) * (gate if activation == "swish" else 1)
    return y


def reference_layer(
    x: Tensor, weight: Tensor, *others: Tensor, activation: str | None = None, bias: bool = True
) -> Tensor:
    """Heads one by one."""
    gate = others[-1] if activation else None
    y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + EPS).sqrt() * weight
    y = torch.stack(
        [y[..., head, :] + (others[0][..., head, :] if bias else 0) for head in range(x.shape[-2])], dim=-2
    )
    if gate is not None:
        y = y / (1 + torch.exp(-gate)) * (gate if activation == "swish" else 1)
    return y


def layer(
    x: Tensor,
    weight: Tensor,
    *others: Tensor,
    activation: str | None = None,
    bias: bool = True,
    **options: Any,
) -> Tensor:
    gate = others[-1] if activation else None
    return layer_norm(
        x, weight, others[0] if bias else None, gate=gate, activation=activation, eps=EPS, **options
    )


def rms(x: Tensor, weight: Tensor, gate: Tensor | None = None, **options: Any) -> Tensor:
    return rms_norm(x, weight, gate=gate, eps=EPS, **options)


def assert_parity(
    function: Norm, expected: Norm, inputs: tuple[Tensor, ...], backend: str, **options: Any
) -> None:
    dtype = inputs[0].dtype
    y, *grads = results(function, inputs, backend=backend, **options)
    wanted, *wanted_grads = results(expected, tuple(x.double() for x in inputs), **options)
    assert all(x.dtype == dtype for x in (y, *grads))
    assert error(y, wanted) < LIMITS[dtype][0]
    assert max(map(error, grads, wanted_grads)) < LIMITS[dtype][1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shape", [(5, 2), (3,), (2, 5, 63), (1, 65), (100, 100), (65, 7), (2, 3, 5, 16), (3, 3000)]
)
def test_l2_norm_equals_the_reference(draw: Draw, backend: str, shape: tuple[int, ...]) -> None:
    assert_parity(l2_norm, reference_l2, (draw(*shape),), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    "shape", [(5, 2), (3,), (2, 5, 63), (1, 65), (100, 100), (65, 7), (2, 3, 5, 16), (3, 3000)]
)
def test_rms_norm_equals_the_reference(
    draw: Draw, backend: str, activation: str | None, shape: tuple[int, ...]
) -> None:
    inputs = draw(*shape), draw(shape[-1]), draw(*shape)
    assert_parity(rms, reference_rms, inputs if activation else inputs[:2], backend, activation=activation)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(5, 2, 5), (3, 7), (2, 5, 3, 63), (1, 1, 65), (100, 5, 7), (2, 3, 2, 16), (3, 2, 3000)]
)
def test_layer_norm_equals_the_reference(
    draw: Draw, backend: str, activation: str | None, bias: bool, shape: tuple[int, ...]
) -> None:
    assert_parity(
        layer,
        reference_layer,
        layer_inputs(draw, shape, activation, bias),
        backend,
        activation=activation,
        bias=bias,
    )


def layer_inputs(
    draw: Draw,
    shape: tuple[int, ...],
    activation: str | None,
    bias: bool = True,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, ...]:
    """x, whose mean is far from zero, weight, and bias and gate where they are wanted."""
    shapes = [shape, shape[-2:], *([shape[-2:]] if bias else []), *([shape] if activation else [])]
    x, *others = (draw(*size, dtype=dtype) for size in shapes)
    return x + 3, *others


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_bfloat16_loses_only_its_own_rounding(draw: Draw, backend: str, activation: str | None) -> None:
    inputs = tuple(draw(*shape, dtype=torch.bfloat16) for shape in ((65, 48), (48,), (65, 48)))
    assert_parity(rms, reference_rms, inputs if activation else inputs[:2], backend, activation=activation)
    assert_parity(l2_norm, reference_l2, inputs[:1], backend)
    assert_parity(
        layer,
        reference_layer,
        layer_inputs(draw, (65, 3, 48), activation, dtype=torch.bfloat16),
        backend,
        activation=activation,
    )


def test_float64_stays_float64(draw: Draw) -> None:
    x, weight, gate = (draw(*shape, dtype=torch.float64) for shape in ((9, 8), (8,), (9, 8)))
    assert error(l2_norm(x), reference_l2(x)) < 1e-14
    assert error(rms(x, weight, gate, activation="swish"), reference_rms(x, weight, gate, "swish")) < 1e-14
    inputs = layer_inputs(draw, (9, 3, 8), "swish", dtype=torch.float64)
    assert error(layer(*inputs, activation="swish"), reference_layer(*inputs, activation="swish")) < 1e-13


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_weight_may_be_wider_than_what_it_weighs(draw: Draw, backend: str) -> None:
    x, weight = draw(9, 8, dtype=torch.bfloat16), draw(8)
    y, dx, dweight = results(rms, (x, weight), backend=backend)
    assert (y.dtype, dx.dtype, dweight.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert error(y, reference_rms(x.double(), weight.double())) < LIMITS[torch.bfloat16][0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_stays_zero(backend: str) -> None:
    y, dx = results(l2_norm, (torch.zeros(3, 8, device=DEVICE),), backend=backend)
    assert not y.any()
    assert dx.isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_taken(draw: Draw, backend: str) -> None:
    x, weight, gate = draw(4, 6, 8), draw(8), draw(4, 6, 8)
    views = (
        x.mT.contiguous().mT,
        torch.stack([weight, weight], -1)[:, 0],
        gate.transpose(0, 1).contiguous().transpose(0, 1),
    )
    assert not any(view.is_contiguous() for view in views)
    assert_near(
        results(rms, views, activation="swish", backend=backend),
        results(rms, (x, weight, gate), activation="swish", backend=backend),
        1e-6,
    )
    assert error(l2_norm(views[0], backend=backend), l2_norm(x, backend=backend)) < 1e-6
    assert (
        error(
            layer_norm(views[0], x[0].mT.contiguous().mT, backend=backend),
            layer_norm(x, x[0], backend=backend),
        )
        < 1e-6
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_replicas_stack(draw: Draw, backend: str, activation: str | None) -> None:
    inputs = draw(3, 5, 2, 8), draw(3, 8), draw(3, 5, 2, 8)
    inputs = inputs if activation else inputs[:2]

    def norms(x: Tensor, *others: Tensor) -> Tensor:
        return l2_norm(rms(x, *others, activation=activation, backend=backend) + 1, backend=backend)

    assert_near(
        results(torch.vmap(norms), inputs),
        results(lambda *given: torch.stack([norms(*(x[i] for x in given)) for i in range(3)]), inputs),
        1e-6,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_replicas_with_heads_stack(draw: Draw, backend: str, activation: str | None, bias: bool) -> None:
    inputs = tuple(
        torch.stack(parts)
        for parts in zip(*(layer_inputs(draw, (5, 3, 8), activation, bias) for _ in range(2)), strict=True)
    )
    one = partial(layer, activation=activation, bias=bias, backend=backend)
    assert_near(
        results(torch.vmap(one), inputs),
        results(lambda *given: torch.stack([one(*(x[i] for x in given)) for i in range(2)]), inputs),
        1e-6,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(draw: Draw, request: pytest.FixtureRequest, backend: str) -> None:
    inputs, heads = (draw(33, 7), draw(7), draw(33, 7)), layer_inputs(draw, (33, 3, 7), "swish")

    def every() -> list[Tensor]:
        weighed = (
            results(norm, given, backend=backend, activation="swish")
            for norm, given in ((rms, inputs), (layer, heads))
        )
        return [*itertools.chain.from_iterable(weighed), *results(l2_norm, inputs[:1], backend=backend)]

    clean = every()
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, every(), clean))


def test_what_does_not_fit_is_refused(draw: Draw) -> None:
    x, weight = draw(3, 8), draw(8)
    with pytest.raises(ValueError, match="weight"):
        rms_norm(x, weight[1:])
    with pytest.raises(ValueError, match="gate shaped as x"):
        rms_norm(x, weight, gate=x[:2], activation="swish")
    for gate, activation in ((None, "swish"), (x, None), (x, "relu")):
        with pytest.raises(ValueError, match="activation"):
            rms_norm(x, weight, gate=gate, activation=activation)
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        l2_norm(x, backend="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float64"):
        rms_norm(x.double(), weight, backend="triton")
    for others in ((x[1:],), (x, x[1:]), (weight,)):
        with pytest.raises(ValueError, match=r"weight \[H, D\]"):
            layer_norm(x, *others)
    with pytest.raises(ValueError, match="gate shaped as x"):
        layer_norm(x, x, gate=x[:2], activation="swish")
    with pytest.raises(ValueError, match="activation"):
        layer_norm(x, x, gate=x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_result_comes_in_the_dtype_that_is_asked_for(draw: Draw, backend: str) -> None:
    inputs = draw(40, 65), draw(65)
    y, *grads = results(rms, inputs, dtype=torch.bfloat16, backend=backend)
    wanted, *wanted_grads = results(reference_rms, tuple(x.double() for x in inputs))
    assert y.dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 for x in grads)
    assert error(y, wanted) < LIMITS[torch.bfloat16][0]
    assert max(map(error, grads, wanted_grads)) < LIMITS[torch.bfloat16][1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("narrow", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("used", ["both", "sum", "norm"])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_a_sum_and_its_norm(
    draw: Draw, backend: str, narrow: torch.dtype, used: str, lead: tuple[int, ...]
) -> None:
    inputs = draw(*lead, 2, 21, 65), draw(*lead, 2, 21, 65, dtype=narrow), draw(*lead, 65)

    def parts(total: Tensor, y: Tensor) -> Tensor:
        return torch.cat(
            [*([total] if used != "norm" else []), *([y.to(total.dtype)] if used != "sum" else [])], dim=-1
        )

    def function(*given: Tensor, **options: Any) -> Tensor:
        one = partial(add_rms_norm, eps=EPS, dtype=narrow, **options)
        return parts(*(torch.vmap(one)(*given) if lead else one(*given)))

    def reference(x: Tensor, added: Tensor, weight: Tensor) -> Tensor:
        return parts(x + added, reference_rms(x + added, weight[:, None, None] if lead else weight))

    y, *grads = results(function, inputs, backend=backend) if used != "sum" else [None]
    if used == "sum":
        leaves = [x.clone().requires_grad_() for x in inputs]
        total = function(*leaves, backend=backend)
        assert torch.allclose(total, (leaves[0] + leaves[1]).to(total.dtype))
        dx, dadded = torch.autograd.grad(total.sum(), leaves[:2])
        assert torch.equal(dx, torch.ones_like(dx))
        assert torch.equal(dadded, torch.ones_like(dadded))
        return
    wanted, *wanted_grads = results(reference, tuple(x.double() for x in inputs))
    assert [x.dtype for x in grads] == [x.dtype for x in inputs]
    assert error(y, wanted) < LIMITS[narrow][0]
    assert max(map(error, grads, wanted_grads)) < LIMITS[narrow][1]


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_the_operator_compiles_whole(draw: Draw, kind: str, activation: str | None) -> None:
    norm = rms if kind == "rms" else layer
    inputs = (
        (draw(5, 8), draw(8), *([draw(5, 8)] if activation else []))
        if kind == "rms"
        else layer_inputs(draw, (5, 3, 8), activation)
    )
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    given, expected = (
        results(function, inputs, activation=activation, backend="triton") for function in (compiled, norm)
    )
    assert all(map(torch.equal, given, expected))
    x, weight, *others = (leaf.detach().unsqueeze(-2) if kind == "rms" else leaf.detach() for leaf in inputs)
    bias, gate = None if kind == "rms" else others[0][None], others[-1] if activation else None
    x, weight, bias, gate = (
        None if leaf is None else leaf.requires_grad_() for leaf in (x, weight[None], bias, gate)
    )
    torch.library.opcheck(
        torch.ops.linbench.norm, (x, None, weight, bias, gate, kind, activation or "none", EPS, torch.float32)
    )


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_many_rows_leave_about_a_thousand_programs() -> None:
    from linbench.kernels.row_tiles import backward_launch

    assert backward_launch(100, 64, summed=True).tiles == 1
    assert backward_launch(4096 * 32, 64, summed=True).tiles == 4
    assert backward_launch(10**9, 64, summed=True).tiles == 64
    assert backward_launch(10**9, 64, summed=False).tiles == 1


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_several_tiles_to_a_program(draw: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    from linbench.kernels.norms import triton

    rule = triton.backward_launch
    monkeypatch.setattr(
        triton, "backward_launch", lambda *args, **options: rule(*args, **options)._replace(rows=2, tiles=4)
    )
    inputs = draw(3, 21, 8), draw(3, 8), draw(3, 21, 8)
    _, *grads = results(torch.vmap(lambda *given: rms(*given, activation="swish", backend="triton")), inputs)
    _, *expected = results(
        lambda x, weight, gate: reference_rms(x, weight[:, None], gate, "swish"),
        tuple(x.double() for x in inputs),
    )
    assert max(map(error, grads, expected)) < LIMITS[torch.float32][1]
    heads = layer_inputs(draw, (21, 3, 8), "swish")
    _, *grads = results(layer, heads, activation="swish", backend="triton")
    _, *expected = results(reference_layer, tuple(x.double() for x in heads), activation="swish")
    assert max(map(error, grads, expected)) < LIMITS[torch.float32][1]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(draw: Draw, replayed: Callable[..., Any]) -> None:
    shapes = (65, 48), (48,), (65, 48)
    leaves, others = [draw(*shape).requires_grad_() for shape in shapes], [draw(*shape) for shape in shapes]

    def step() -> tuple[Tensor, ...]:
        x, weight, _ = leaves
        y = rms(*leaves, activation="swish", backend="triton") + l2_norm(x, backend="triton")
        y = y + layer_norm(x[:, None], weight[None], weight[None], backend="triton")[:, 0]
        return y, *torch.autograd.grad(y.square().sum(), leaves)

    captured = replayed(step, leaves, others)
    assert all(map(torch.equal, captured, step()))

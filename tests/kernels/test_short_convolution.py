from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.norms import l2_norm
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.short_convolution import short_convolution
from tests.helpers.gradients import assert_near, error, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
LIMITS = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}
B = 2

Inputs = tuple[Tensor, Tensor, Tensor | None]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    """x, weight, state."""

    def build(
        length: int,
        *,
        width: int = 4,
        channels: int = 20,
        state: bool = True,
        dtype: torch.dtype = torch.float32,
        lead: tuple[int, ...] = (),
    ) -> Inputs:
        def draw(*shape: int) -> Tensor:
            return torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

        return (
            draw(B, length, channels),
            draw(width, channels),
            draw(B, width - 1, channels) if state else None,
        )

    return build


def reference(
    x: Tensor,
    weight: Tensor,
    state: Tensor | None,
    l2_heads: tuple[int, int] | None,
    activation: str | None = "silu",
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    width, length = len(weight), x.shape[1]
    state = x.new_zeros(x.shape[0], width - 1, x.shape[2]) if state is None else state
    inputs = torch.cat([state, x], dim=1)
    rows = []
    for t in range(length):
        z = sum(weight[i] * inputs[:, t + i] for i in range(width)) + (0 if bias is None else bias)
        y = z / (1 + torch.exp(-z)) if activation == "silu" else z
        if l2_heads is not None:
            channels, head_dim = l2_heads
            heads = y[:, :channels].unflatten(-1, (-1, head_dim))
            y = torch.cat(
                [(heads / (heads.square().sum(-1, keepdim=True) + 1e-6).sqrt()).flatten(1), y[:, channels:]],
                dim=-1,
            )
        rows.append(y)
    return torch.stack(rows, dim=1), inputs[:, length:]


def convolution(*given: Tensor | None, **options: Any) -> tuple[Tensor, Tensor]:
    """Its parts as one."""
    y, last = short_convolution(*given, **options)
    return torch.cat(y, dim=-1), last


def assert_parity(
    backend: str, inputs: Inputs, l2_heads: tuple[int, int] | None, activation: str | None = "silu"
) -> None:
    dtype = inputs[0].dtype
    exact = tuple(None if x is None else x.double() for x in inputs)
    given = results(convolution, inputs, activation=activation, l2_heads=l2_heads, backend=backend)
    expected = results(reference, exact, activation=activation, l2_heads=l2_heads)
    assert all(x.dtype == dtype for x in given)
    for part, limit in zip((slice(2), slice(2, None)), LIMITS[dtype], strict=True):
        assert_near(given[part], expected[part], limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [1, 2, 3, 63, 65, 100])
@pytest.mark.parametrize(
    ("width", "channels", "l2_heads", "state"),
    [
        (4, 20, (16, 8), True),
        (4, 70, None, False),
        (3, 25, (18, 6), True),
        (2, 24, (24, 3), False),
        (1, 20, (0, 5), True),
    ],
)
def test_outputs_state_and_gradients_equal_the_reference(
    make: Callable[..., Inputs],
    backend: str,
    length: int,
    width: int,
    channels: int,
    l2_heads: tuple[int, int] | None,
    state: bool,
) -> None:
    assert_parity(backend, make(length, width=width, channels=channels, state=state), l2_heads)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [1, 65])
@pytest.mark.parametrize(("width", "l2_heads"), [(3, None), (4, (16, 8))])
def test_without_an_activation_it_is_the_bare_convolution(
    make: Callable[..., Inputs], backend: str, length: int, width: int, l2_heads: tuple[int, int] | None
) -> None:
    assert_parity(backend, make(length, width=width), l2_heads, activation=None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("length", [1, 3, 63, 65, 100])
@pytest.mark.parametrize(
    ("width", "l2_heads", "activation"),
    [(4, None, "silu"), (4, (16, 8), "silu"), (3, None, None), (1, None, None)],
)
def test_a_bias_comes_before_the_activation(
    make: Callable[..., Inputs],
    backend: str,
    dtype: torch.dtype,
    length: int,
    width: int,
    l2_heads: tuple[int, int] | None,
    activation: str | None,
) -> None:
    inputs = (*make(length, width=width, dtype=dtype), make(1, width=width, dtype=dtype)[0][0, 0])
    options = {"l2_heads": l2_heads, "activation": activation}

    def biased(function: Callable[..., tuple[Tensor, Tensor]], given: Any, **more: Any) -> list[Tensor]:
        def of_all(x: Tensor, weight: Tensor, state: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
            return function(x, weight, state, bias=bias, **options, **more)

        return results(of_all, given)

    given = biased(convolution, inputs, backend=backend)
    expected = biased(reference, tuple(x.double() for x in inputs))
    for part, limit in zip((slice(2), slice(2, None)), LIMITS[dtype], strict=True):
        assert_near(given[part], expected[part], limit)


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_with_biases_stack(make: Callable[..., Inputs], backend: str) -> None:
    x, weight, state = make(5, lead=(3,))
    inputs = (x, weight, state, make(1, lead=(3,))[0][:, 0, 0])

    def one(x: Tensor, weight: Tensor, state: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return convolution(x, weight, state, bias=bias, backend=backend)

    def one_by_one(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            map(torch.stack, zip(*(one(*(each[i] for each in given)) for i in range(3)), strict=True))
        )

    assert_near(results(torch.vmap(one), inputs), results(one_by_one, inputs), 1e-6)


def test_a_bias_of_another_size_is_refused(make: Callable[..., Inputs]) -> None:
    x, weight, state = make(3)
    with pytest.raises(ValueError, match=r"bias must be \[C\] = \(20,\), not \(19,\)"):
        short_convolution(x, weight, state, bias=weight[0, 1:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("parts", "l2_heads", "lead"),
    [
        ((32, 16, 48), None, ()),
        ((32, 32, 64), (64, 16), ()),
        ((16, 80), (16, 16), ()),
        ((7, 20, 10), None, ()),
        ((24, 24, 12), (48, 12), ()),
        ((256, 256, 128), (512, 64), ()),
        ((7, 20, 10), None, (2,)),
        ((24, 24, 12), (48, 12), (2,)),
    ],
)
def test_parts_are_those_of_the_whole(
    make: Callable[..., Inputs], backend: str, parts: tuple[int, ...], l2_heads: Any, lead: tuple[int, ...]
) -> None:
    inputs = make((5 if lead else 7) if INTERPRETED else 18, channels=sum(parts), lead=lead)
    whole, in_parts = ({"l2_heads": l2_heads, "backend": backend, "parts": given} for given in (None, parts))

    def function(*given: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        one = partial(convolution, **options)
        return torch.vmap(one)(*given) if lead else one(*given)

    assert_near(results(function, inputs, **in_parts), results(function, inputs, **whole), 1e-6)
    widths = [part.shape[-1] for part in short_convolution(*make(3, channels=sum(parts)), **in_parts)[0]]
    assert widths == list(parts)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_that_nobody_uses_have_no_gradient(make: Callable[..., Inputs], backend: str) -> None:
    x, weight, _ = (
        None if one is None else one.requires_grad_() for one in make(9, channels=48, state=False)
    )

    def gradients(parts: tuple[int, ...] | None) -> tuple[Tensor, ...]:
        y, _ = short_convolution(x, weight, parts=parts, backend=backend)
        used = y[1] if parts else y[0][..., 16:32]
        return torch.autograd.grad(used.square().sum(), (x, weight))

    assert all(
        torch.allclose(given, expected, atol=1e-6)
        for given, expected in zip(gradients((16, 16, 16)), gradients(None), strict=True)
    )


@pytest.mark.parametrize("parts", [(), (10, 9), (5, 5, 5, 5), (20, 0)])
def test_parts_that_do_not_fit_are_refused(make: Callable[..., Inputs], parts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at most 3 numbers of channels, 20 in all"):
        short_convolution(*make(3), parts=parts)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("l2_heads", [None, (16, 8)])
def test_bfloat16_loses_only_its_own_rounding(
    make: Callable[..., Inputs], backend: str, l2_heads: tuple[int, int] | None
) -> None:
    assert_parity(backend, make(65, dtype=torch.bfloat16), l2_heads)


@pytest.mark.parametrize("state", [False, True])
def test_float64_stays_float64(make: Callable[..., Inputs], state: bool) -> None:
    inputs = make(9, dtype=torch.float64, state=state)
    assert_near(
        results(convolution, inputs, l2_heads=(16, 8)), results(reference, inputs, l2_heads=(16, 8)), 1e-12
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (1, 4), (3, 2), (2, 0, 3)])
def test_a_split_sequence_gives_the_same(
    make: Callable[..., Inputs], backend: str, pieces: tuple[int, ...]
) -> None:
    def split(x: Tensor, weight: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        parts = []
        for piece in x.split(pieces, dim=1):
            if piece.shape[1]:
                y, state = convolution(piece, weight, state, l2_heads=(16, 8), backend=backend)
                parts.append(y)
        return torch.cat(parts, dim=1), state

    inputs = make(5)
    assert_near(results(split, inputs), results(convolution, inputs, l2_heads=(16, 8), backend=backend), 1e-6)


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_future_changes_nothing(make: Callable[..., Inputs], backend: str) -> None:
    x, weight, state = make(40)
    y, _ = convolution(x, weight, state, l2_heads=(16, 8), backend=backend)
    for t in (1, 2, 17, 39):
        other = torch.cat([x[:, :t], 3 - x[:, t:]], dim=1)
        changed, _ = convolution(other, weight, state, l2_heads=(16, 8), backend=backend)
        assert torch.equal(changed[:, :t], y[:, :t])
        assert not torch.equal(changed[:, t], y[:, t])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_norm_is_that_of_the_heads_that_come_first(make: Callable[..., Inputs], backend: str) -> None:
    x, weight, state = make(7)
    plain, _ = convolution(x, weight, state, backend=backend)
    y, _ = convolution(x, weight, state, l2_heads=(16, 8), backend=backend)
    assert (
        error(
            y[..., :16].unflatten(-1, (2, 8)), l2_norm(plain[..., :16].unflatten(-1, (2, 8)), backend="torch")
        )
        < 1e-6
    )
    assert torch.equal(y[..., 16:], plain[..., 16:])


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_stays_zero(make: Callable[..., Inputs], backend: str) -> None:
    x, weight, _ = make(5, state=False)
    y, _, *grads = results(
        convolution, (torch.zeros_like(x), weight, None), l2_heads=(16, 8), backend=backend
    )
    assert not y.any()
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_taken(make: Callable[..., Inputs], backend: str) -> None:
    x, weight, state = make(6)
    views = (
        torch.stack([x, -x], dim=-1)[..., 0],
        weight.T.contiguous().T,
        state.transpose(0, 1).contiguous().transpose(0, 1),
    )
    assert not any(view.is_contiguous() for view in views)
    wanted = results(convolution, (x, weight, state), backend=backend)
    assert all(map(torch.equal, results(convolution, views, backend=backend), wanted))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("state", [False, True])
def test_replicas_stack(make: Callable[..., Inputs], backend: str, state: bool) -> None:
    inputs = make(5, lead=(3,), state=state)

    def stacked(*given: Tensor) -> tuple[Tensor, Tensor]:
        return torch.vmap(lambda *one: convolution(*one, l2_heads=(16, 8), backend=backend))(
            *(x for x in given if x is not None)
        )

    def one_by_one(*given: Tensor) -> tuple[Tensor, ...]:
        each = [
            convolution(*(None if x is None else x[i] for x in given), l2_heads=(16, 8), backend=backend)
            for i in range(3)
        ]
        return tuple(map(torch.stack, zip(*each, strict=True)))

    assert_near(results(stacked, inputs), results(one_by_one, inputs), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [2, 33])
def test_no_unwritten_memory_is_read(
    make: Callable[..., Inputs], request: pytest.FixtureRequest, backend: str, length: int
) -> None:
    inputs = make(length)
    clean = results(convolution, inputs, l2_heads=(16, 8), backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(convolution, inputs, l2_heads=(16, 8), backend=backend), clean))


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_result_alone_has_gradients(make: Callable[..., Inputs], backend: str, part: int) -> None:
    inputs = make(2)

    def only(function: Callable[..., tuple[Tensor, ...]]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        grads = torch.autograd.grad(function(*leaves)[part].square().sum(), leaves, allow_unused=True)
        return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, grads, strict=True)]

    expected = only(lambda *leaves: reference(*leaves, None))
    for given, wanted in zip(
        only(lambda *leaves: convolution(*leaves, backend=backend)), expected, strict=True
    ):
        assert torch.allclose(given, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w, s: (x[0], w, s), "B, T, C"),
        (lambda x, w, s: (x[:, :0], w, s), "T >= 1"),
        (lambda x, w, s: (x, w[:, 1:], s), "W, C"),
        (lambda x, w, s: (x, w.repeat(2, 1), s), "from 1 to 4"),
        (lambda x, w, s: (x, w, s[:, 1:]), "state"),
        (lambda x, w, s: (x, w, s[:1]), "state"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    make: Callable[..., Inputs], change: Callable[..., Inputs], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        convolution(*change(*make(3)))


@pytest.mark.parametrize("l2_heads", [(15, 4), (24, 8), (16, 0), (-8, 8)])
def test_heads_that_do_not_fit_are_refused(make: Callable[..., Inputs], l2_heads: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="l2_heads"):
        convolution(*make(3), l2_heads=l2_heads)


def test_an_activation_that_there_is_not_is_refused(make: Callable[..., Inputs]) -> None:
    with pytest.raises(ValueError, match="silu or None, not 'relu'"):
        convolution(*make(3), activation="relu")  # type: ignore[arg-type]


def test_a_backend_that_does_not_run_is_refused(make: Callable[..., Inputs]) -> None:
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        convolution(*make(3), backend="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float64"):
        convolution(*make(3, dtype=torch.float64), backend="triton")


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize("state", [False, True])
def test_the_operator_compiles_whole(make: Callable[..., Inputs], state: bool) -> None:
    inputs = make(5, state=state)
    compiled = torch.compile(convolution, fullgraph=True, backend="aot_eager")
    given, expected = (
        results(function, inputs, l2_heads=(16, 8), backend="triton") for function in (compiled, convolution)
    )
    assert all(map(torch.equal, given, expected))
    x, weight, before = inputs
    for biased in (False, True):  # with a bias there is a tap less
        leaves = [
            None if leaf is None else leaf.detach().requires_grad_()
            for leaf in (x, weight[None], before if before is None else before[:, biased:])
        ]
        torch.library.opcheck(torch.ops.linbench.short_convolution, (*leaves, biased, True, 2, 8, [20], 1e-6))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(make: Callable[..., Inputs], replayed: Callable[..., Any]) -> None:
    inputs, others = make(65), make(65)
    leaves = [x.clone().requires_grad_() for x in inputs]

    def step() -> tuple[Tensor, ...]:
        y, last = convolution(*leaves, l2_heads=(16, 8), backend="triton")
        return y, *torch.autograd.grad(y.square().sum() + last.sum(), leaves)

    captured = replayed(step, leaves, others)
    assert all(map(torch.equal, captured, step()))

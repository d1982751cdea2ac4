"""Least squares: what it minimises, that its forms agree, and what a singular Gram matrix does."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.least_squares import least_squares
from linbench.kernels.least_squares.solvers import chebyshev, conjugate_gradient
from tests.helpers.gradients import assert_near, results

H, K, V = 2, 4, 3
NAMES = ("q", "k", "v", "log_decay", "strength", "ridge", "root", "cross")
Make = Callable[..., list[Tensor]]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """Inputs by `NAMES`; the Gram matrix of the state is the product of `root` with itself."""

    def build(
        length: int, *, lead: tuple[int, ...] = (2,), dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        def draw(*size: int) -> Tensor:
            return torch.randn(*lead, *size, generator=generator, dtype=torch.float64)

        inputs = [
            draw(length, H, K),
            F.normalize(draw(length, H, K), dim=-1),
            draw(length, H, V),
            F.logsigmoid(3 + draw(length, H)),
            draw(length, H).sigmoid(),
            0.5 + draw(length, H, K).sigmoid(),
            0.5 * draw(H, K, K),
            draw(H, K, V),
        ]
        return [x.to(dtype) for x in inputs]

    return build


def call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    strength: Tensor,
    ridge: Tensor,
    root: Tensor,
    cross: Tensor,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    o, state = least_squares(
        q,
        k,
        v,
        log_decay=log_decay,
        strength=strength,
        ridge=ridge,
        state=(root @ root.mT, cross),
        **options,
    )
    return o, *state


@pytest.mark.parametrize("backend", ["reference", "chunkwise"])
@pytest.mark.parametrize("decays", [False, True])
def test_it_is_the_best_map_for_all_tokens_so_far(make: Make, backend: Any, decays: bool) -> None:
    """Rows are weighted by roots and the ridge is rows of their own. Without a decay the reference recurs."""
    q, k, v, log_decay, strength, ridge, _, _ = make(9)
    gates = log_decay if decays else None
    o, _ = least_squares(
        q, k, v, log_decay=gates, strength=strength, ridge=ridge[0, 0], method="exact", backend=backend
    )
    sums = log_decay.cumsum(dim=1) if decays else torch.zeros_like(log_decay)
    for t in (0, 3, 8):
        weights = ((sums[:, t, None] - sums[:, : t + 1]).exp() * strength[:, : t + 1]).sqrt()[..., None]
        rows = torch.cat(
            [
                weights * k[:, : t + 1],
                torch.diag_embed(ridge[0, 0].sqrt()).expand(2, -1, -1, -1).transpose(1, 2),
            ],
            dim=1,
        )
        aims = torch.cat([weights * v[:, : t + 1], v.new_zeros(2, K, H, V)], dim=1)
        best = torch.linalg.lstsq(rows.transpose(1, 2), aims.transpose(1, 2)).solution
        expected = torch.einsum("bhk,bhkv->bhv", q[:, t], best)
        torch.testing.assert_close(o[:, t], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"method": "chebyshev", "steps": 90}, {"method": "exact"}], ids=str)
@pytest.mark.parametrize("length", [1, 63, 65, 100])
def test_its_forms_agree(make: Make, length: int, options: dict[str, Any]) -> None:
    inputs = make(length)
    expected = results(partial(call, method="exact", backend="reference"), inputs)
    assert_near(results(partial(call, **options), inputs), expected, 1e-10)
    if length == 1:
        assert_near(results(partial(call, **options, backend="reference"), inputs), expected, 1e-10)


@pytest.mark.parametrize("method", ["cg", "chebyshev"])
@pytest.mark.parametrize("steps", [1, 3])
def test_few_steps_are_those_of_the_reference(make: Make, method: str, steps: int) -> None:
    """Far from converged, with the gradient through the steps."""
    inputs = make(34)
    options: dict[str, Any] = {"method": method, "steps": steps, "gradient": "unrolled"}
    found = results(partial(call, **options), inputs)
    assert_near(found, results(partial(call, **options, backend="reference"), inputs), 1e-10)
    exact = call(*inputs, method="exact")
    assert (found[0] - exact[0]).norm() > 1e-3 * exact[0].norm()


@pytest.mark.parametrize("solver", ["cg", "chebyshev"])
def test_steps_come_as_close_as_theory_says(generator: torch.Generator, solver: str) -> None:
    """Conjugate gradients are done after as many steps as there are eigenvalues; Chebyshev's bound holds."""
    A = torch.diag(torch.tensor([1.0, 1.0, 4.0, 9.0], dtype=torch.float64))
    b = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    exact = b / A.diagonal()
    if solver == "cg":
        assert (conjugate_gradient(lambda x: x @ A, b, 2) - exact).abs().max() > 1e-3
        torch.testing.assert_close(conjugate_gradient(lambda x: x @ A, b, 3), exact)
        return
    bounds = [b.new_full((5, 1), bound) for bound in (1.0, 9.0)]
    for steps in (3, 10, 30):
        error = chebyshev(lambda x: x @ A, b, *bounds, steps) - exact
        assert error.norm() <= 2 * 0.5 ** (steps + 1) * 1.0001 * exact.norm()  # (3 - 1) / (3 + 1)


SINGULAR: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "zero keys": lambda q, k: (q, 0 * k),
    "zero queries": lambda q, k: (0 * q, k),
    "one key": lambda q, k: (q, k[:, :1].expand_as(k)),
    "long keys": lambda q, k: (q, 1e3 * k[:, :2].repeat(1, 20, 1, 1)),
    "one direction of each head": lambda q, k: (q, F.one_hot(torch.zeros(1, 40, H).long(), K).float()),
}


@pytest.mark.parametrize(
    "options", [{}, {"method": "chebyshev"}, {"method": "exact"}, {"gradient": "unrolled"}], ids=str
)
@pytest.mark.parametrize("case", SINGULAR)
@pytest.mark.parametrize("decay", [0.0, -torch.inf])
def test_a_singular_gram_matrix_breaks_nothing(
    make: Make, case: str, options: dict[str, Any], decay: float
) -> None:
    """A ridge of zero counts as the least that keeps the condition bounded."""
    q, k, v, log_decay, strength, ridge, root, cross = make(40, lead=(1,), dtype=torch.float32)
    q, k = SINGULAR[case](q, k)
    log_decay[:, 7] = decay
    inputs = q, k, v, log_decay, strength, 0 * ridge, 0 * root, 0 * cross
    assert all(x.isfinite().all() for x in results(partial(call, **options), inputs))


def test_what_no_key_points_to_is_read_as_zero(make: Make) -> None:
    """And what keys do point to is recalled: the limit of a small ridge."""
    q, k, v, *_ = make(40, dtype=torch.float32)
    k = torch.zeros_like(k)
    k[..., 0] = 1.0
    ridge = torch.zeros(K)
    for method in ("cg", "exact"):
        o, _ = least_squares(q, k, v, ridge=ridge, method=method)  # type: ignore[arg-type]
        mean = v.cumsum(dim=1) / torch.arange(1.0, 41.0)[:, None, None]
        torch.testing.assert_close(o, q[..., :1] * mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["cg", "chebyshev", "exact"])
def test_small_queries_and_small_gradients_are_not_taken_for_zero(make: Make, method: str) -> None:
    """Squares of 1e-25 are zero in float32."""
    inputs = make(40, dtype=torch.float32)
    small = [1e-25 * inputs[0], *inputs[1:]]
    found, expected = (results(partial(call, method=method), given) for given in (small, inputs))
    assert_near([1e25 * found[0]], [expected[0]], 1e-5)
    query = inputs[0].requires_grad_()
    o, *_ = call(*inputs, method=method)
    (gradient,) = torch.autograd.grad(o.sum(), query, retain_graph=True)
    (less,) = torch.autograd.grad(1e-25 * o.sum(), query)
    assert_near([1e25 * less], [gradient], 1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"method": "chebyshev"}, {"method": "exact"}, {"gradient": "unrolled"}], ids=str
)
def test_replicas_stack(make: Make, options: dict[str, Any]) -> None:
    inputs = make(35, lead=(3, 2))
    together = results(torch.vmap(partial(call, **options)), inputs)
    each = [results(partial(call, **options), [x[i] for x in inputs]) for i in range(3)]
    assert_near(
        together[:3], [torch.stack(parts) for parts in zip(*(one[:3] for one in each), strict=True)], 1e-10
    )

    def loss(*given: Tensor) -> Tensor:
        return call(*given, **options)[0].square().sum()

    argnums = (*range(len(inputs)),)
    stacked = torch.vmap(torch.func.grad(loss, argnums=argnums))(*inputs)
    alone = [torch.func.grad(loss, argnums=argnums)(*(x[i] for x in inputs)) for i in range(3)]
    assert_near([*stacked], [torch.stack(parts) for parts in zip(*alone, strict=True)], 1e-9)


def test_autocast_rounds_nothing_inside(make: Make) -> None:
    inputs = make(35, dtype=torch.float32)
    inputs[6] = 0 * inputs[6]  # or autocast would round the state before the call
    plain = [x.detach() for x in call(*inputs)]
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, call(*inputs), plain))
    half = results(
        call, [x.bfloat16() if name in "qkv" else x for name, x in zip(NAMES, inputs, strict=True)]
    )
    assert [x.dtype for x in half[:3]] == [torch.bfloat16, torch.float32, torch.float32]
    assert_near(half[:3], plain, 2e-2)


def test_stopping_and_carrying_on_changes_nothing(make: Make) -> None:
    inputs = make(70)
    whole, *last = call(*inputs)
    tokens, (root, cross) = inputs[:6], inputs[6:]
    for point in (1, 31, 33, 69):
        first, state = least_squares(
            *(x[:, :point] for x in tokens[:3]),
            **{name: x[:, :point] for name, x in zip(NAMES[3:6], tokens[3:], strict=True)},
            state=(root @ root.mT, cross),
        )
        second, state = least_squares(
            *(x[:, point:] for x in tokens[:3]),
            **{name: x[:, point:] for name, x in zip(NAMES[3:6], tokens[3:], strict=True)},
            state=state,
        )
        assert_near([torch.cat([first, second], dim=1), *state], [whole, *last], 1e-11)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "lu"},
        {"gradient": "none"},
        {"steps": 0},
        {"backend": "triton"},
        {"k": torch.ones(2, 5, 2, 3)},
        {"v": torch.ones(2, 5, 3, 4)},
        {"log_decay": torch.ones(2, 4, 2)},
        {"ridge": torch.ones(3)},
        {"state": (torch.ones(2, 2, 4, 4), torch.ones(2, 2, 4, 3))},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any]) -> None:
    x = torch.ones(2, 5, 2, 4)
    with pytest.raises(ValueError, match=next(iter(changed))):
        least_squares(**{"q": x, "k": x, "v": x, "ridge": 1.0, **changed})

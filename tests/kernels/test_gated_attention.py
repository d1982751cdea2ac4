"""Softmax attention with gates, slopes or a window: no matrix of all queries and keys, and what the
step-by-step reference says."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import attention
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, error, results

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended"),
]

Inputs = tuple[Tensor, ...]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    """q, k, v, and logarithms of gates in float32."""

    def build(
        batch: int,
        length: int,
        heads: int,
        key_dim: int,
        value_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        lead: tuple[int, ...] = (),
    ) -> Inputs:
        def draw(dim: int) -> Tensor:
            return torch.randn(*lead, batch, length, heads, dim, generator=generator, dtype=torch.float64).to(
                DEVICE, dtype
            )

        gates = F.logsigmoid(
            2 * torch.randn(*lead, batch, length, heads, generator=generator, dtype=torch.float64)
        )
        return draw(key_dim), draw(key_dim), draw(value_dim), gates.to(DEVICE, torch.float32)

    return build


def gated(
    q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None = None, *, backend: str = "triton", **options: Any
) -> Tensor:
    kept = None if gates is None else gates.double().cumsum(dim=1)
    return attention(q, k, v, kept=None if kept is None else (kept, kept), backend=backend, **options)


def held_to_the_reference(inputs: Inputs, **options: Any) -> None:
    given = results(gated, inputs, **options)
    exact = results(
        gated,
        [x.double() for x in inputs],
        backend="reference",
        **{name: x.double() if isinstance(x, Tensor) else x for name, x in options.items()},
    )
    outputs, gradients = LIMITS[inputs[0].dtype]
    assert_near(given[:1], exact[:1], outputs)
    # gradients that vanish by cancellation, or of a query that sees one key
    least = 1e-2 * max(float(x.norm()) for x in exact[1:])
    assert all(
        float((x.double() - wanted).norm()) <= gradients * max(least, float(wanted.norm()))
        for x, wanted in zip(given[1:], exact[1:], strict=True)
    )


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("window", [None, 1, 20, 2**31 - 1])
@pytest.mark.parametrize(
    "shape",
    [(2, 1, 1, 8, 5), (1, 17, 2, 16, 24), (1, 63, 1, 24, 16), (2, 65, 1, 16, 16), (1, 100, 1, 33, 16)],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_gates_and_windows(
    make: Callable[..., Inputs], shape: tuple[int, ...], window: int | None, dtype: torch.dtype
) -> None:
    held_to_the_reference(make(*shape, dtype=dtype), window=window)


@pytest.mark.parametrize(("key_dim", "value_dim"), [(32, 100), (100, 32), (128, 64), (200, 256)])
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.usefixtures("poisoned_memory")
def test_wide_heads(make: Callable[..., Inputs], key_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    held_to_the_reference(make(1, 40, 1, key_dim, value_dim, dtype=dtype))


@pytest.mark.parametrize("with_gates", [False, True])
def test_slopes_and_scales_of_heads(make: Callable[..., Inputs], with_gates: bool) -> None:
    q, k, v, gates = make(2, 33, 3, 16, 16)
    slopes, scale = torch.tensor([0.5, 0.1, 0.0], device=DEVICE), torch.tensor([0.3, 1.0, 2.0], device=DEVICE)
    held_to_the_reference((q, k, v, gates) if with_gates else (q, k, v), slopes=slopes, scale=scale)


def test_fewer_heads_of_keys(make: Callable[..., Inputs]) -> None:
    q, _, _, gates = make(1, 20, 4, 16, 16)
    _, k, v, _ = make(1, 20, 2, 16, 16)
    held_to_the_reference((q, k, v, gates), window=7)


def test_gates_that_add_up_to_much_leave_what_is_near_exact(make: Callable[..., Inputs]) -> None:
    """Sums beyond 16,000, where float32 knows differences to a thousandth."""
    q, k, v, gates = make(1, 90, 1, 16, 16)
    gates[:, 10] = -20_000.0
    held_to_the_reference((q, k, v, gates))


def test_it_reads_parts_of_one_map_and_any_other_layout_as_they_lie(make: Callable[..., Inputs]) -> None:
    """The layout decides nothing but where a number is: outputs and gradients are the same bits."""
    q, k, v, gates = make(2, 21, 3, 16, 24)
    joined = torch.cat([x.flatten(2) for x in (q, k, v)], dim=2)
    parts = [x.unflatten(2, (3, -1)) for x in joined.split([48, 48, 72], dim=2)]
    by_head = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    backwards = gates.mT.contiguous().mT
    first = [torch.stack([x, x.neg()])[0] for x in (q, k, v)]
    assert not any(x.is_contiguous() for x in (*parts, *by_head, backwards))
    exact = results(gated, (q, k, v, gates))
    for layout in ((*parts, backwards), (*by_head, gates), (*first, gates)):
        assert all(map(torch.equal, results(gated, layout), exact))


@pytest.mark.parametrize("window", [None, 20])
def test_no_token_depends_on_a_later_one(make: Callable[..., Inputs], window: int | None) -> None:
    inputs = make(1, 80, 1, 16, 16)
    whole = gated(*inputs, window=window)
    for t in (1, 63, 64, 79):
        changed = gated(*(torch.cat([x[:, :t], 3 * x[:, t:] - 1], dim=1) for x in inputs), window=window)
        assert torch.equal(changed[:, :t], whole[:, :t])
        assert not torch.equal(changed[:, t:], whole[:, t:])


def test_replicas_stack(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 20, 2, 16, 16, lead=(3,))
    together = results(torch.vmap(partial(gated, window=9)), inputs)
    exact = results(
        lambda *x: gated(*(y.flatten(0, 1) for y in x), window=9, backend="reference").unflatten(0, (3, 2)),
        [x.double() for x in inputs],
    )
    assert_near(together, exact, 5e-5)


def test_it_compiles_whole(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 5, 3, 16, 16)
    compiled = torch.compile(gated, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, results(compiled, inputs), results(gated, inputs)))


@pytest.mark.skipif(INTERPRETED, reason="an operator is checked where it is quick")
@pytest.mark.gpu
def test_it_is_captured(make: Callable[..., Inputs], replayed: Callable[..., Any]) -> None:
    inputs, others = make(2, 70, 3, 16, 16), make(2, 70, 3, 16, 16)
    captured = replayed(lambda: (gated(*inputs),), inputs, others)
    assert torch.equal(captured[0], gated(*others))


def test_it_is_there_where_scores_are_more_than_products(make: Callable[..., Inputs]) -> None:
    q, k, v, gates = make(1, 9, 2, 16, 16)
    kept = gates.double().cumsum(dim=1)
    for more in ({"kept": (kept, kept)}, {"window": 3}, {"slopes": torch.ones(2, device=DEVICE)}):
        assert error(attention(q, k, v, **more), attention(q, k, v, **more, backend="dense")) < 1e-5
    for less in (
        {},
        {"window": 3, "v": torch.randn(1, 9, 2, 65, device=DEVICE)},
        {"kept": (kept, kept.clone())},
        {
            "window": 3,
            "query_positions": torch.arange(9, device=DEVICE)[None],
            "key_positions": torch.arange(9, device=DEVICE)[None],
        },
    ):
        with pytest.raises(ValueError, match="one of auto, reference, dense"):
            attention(**({"q": q, "k": k, "v": v} | less), backend="triton")

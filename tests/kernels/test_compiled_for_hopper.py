"""Kernels that no GPU has run here: an H100's compiler takes all of them, and they fit."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

from linbench.kernels.operators import INTERPRETED
from linbench.kernels.precompile import record_launches

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(INTERPRETED or find_spec("triton") is None, reason="there is no compiler"),
]

WIDTHS = [(16, 16), (16, 100), (64, 64), (64, 128), (128, 128)]
HEADS, BLOCKS = 2, 6

Call = Callable[[], object]


def corrected(key_dim: int, value_dim: int, dtype: torch.dtype) -> Call:
    from linbench.kernels.attention.triton import corrected

    length = 1024
    q, k = torch.zeros(2, 1, length, HEADS, key_dim, dtype=dtype)
    v, beta = torch.zeros(1, length, HEADS, value_dim, dtype=dtype), torch.zeros(1, length, HEADS)

    def call() -> None:
        u, lse, inverses, read = corrected.forward(q, k, v, beta, 0.1)
        corrected.backward(q, k, beta, u, lse, inverses, read, u, 0.1)

    return call


def reflected(key_dim: int, value_dim: int, dtype: torch.dtype) -> Call:
    from linbench.kernels.attention.triton import reflected

    row = (1, BLOCKS * reflected.BLOCK, HEADS)
    q, k, w = torch.zeros(3, *row, key_dim, dtype=dtype)
    v, beta, c = torch.zeros(*row, value_dim, dtype=dtype), torch.zeros(row), torch.zeros(row)

    def call() -> None:
        o, lse, sums = reflected.forward(q, k, v, w, beta, c, 0.1)
        reflected.backward(q, k, v, w, beta, sums, o, lse, o, 0.1)

    return call


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("make", [corrected, reflected])
def test_every_launch_compiles_and_fits(
    make: Callable[..., Call], widths: tuple[int, int], dtype: torch.dtype
) -> None:
    from tests.helpers.hopper import SHARED_BYTES, shared_bytes

    if make is reflected and dtype == torch.float32 and max(widths) > 64:
        pytest.skip("PaTH attention has no kernel for wide heads in float32")
    with record_launches() as launched:
        make(*widths, dtype)()
    each = {
        (call.kernel.__module__, call.kernel.__name__, call.options.get("BACK")): call for call in launched
    }
    assert len(each) > 4
    found = {name: shared_bytes(call) for name, call in each.items()}
    assert max(found.values()) <= SHARED_BYTES, found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("method", ["cg", "chebyshev"])
@pytest.mark.parametrize("key_dim", [16, 28, 64, 128])
def test_least_squares_compile_and_fit(key_dim: int, method: str, dtype: torch.dtype) -> None:
    from linbench.kernels.least_squares import triton
    from tests.helpers.hopper import SHARED_BYTES, shared_bytes

    q, v = torch.zeros(1, 256, HEADS, key_dim, dtype=dtype), torch.zeros(1, 256, HEADS, 100, dtype=dtype)
    gates, gram, cross = (
        torch.zeros(1, *size) for size in ((256, HEADS), (HEADS, key_dim, key_dim), (HEADS, key_dim, 100))
    )
    system = gates, gates, torch.zeros(1, 256, HEADS, key_dim), gates
    with record_launches() as launched:
        o, *_, x, grams, crosses = triton.forward(q, q, v, *system, gram, cross, 30, method)
        triton.backward(q, v, *system, x, grams, crosses, o, gram, cross, 30, method, True)
    each = {(call.kernel.__name__, call.options.get("NEGATIVE")): call for call in launched}
    found = {name: shared_bytes(call) for name, call in each.items()}
    assert len(found) == 7
    assert max(found.values()) <= SHARED_BYTES, found


@pytest.mark.parametrize(
    ("dim", "size", "normed"),
    [(16, 16, True), (28, 1, False), (64, 16, True), (64, 32, True), (128, 32, True)],
)
def test_fast_weights_compile_and_fit(dim: int, size: int, normed: bool) -> None:
    from linbench.kernels.fast_weight.triton import reads, writes
    from tests.helpers.hopper import SHARED_BYTES, shared_bytes

    k, rates = torch.zeros(1, 256, HEADS, dim), torch.zeros(1, 256, HEADS)
    initial, norm = torch.zeros(1, HEADS, dim + normed, dim), torch.zeros(1, HEADS, 2, dim)
    scales = torch.ones(1, size)
    with record_launches() as launched:
        g, starts, z = writes.forward(k, k, rates, initial, norm, size, normed)
        writes.backward(k, k, rates, norm, g, starts, z, g, starts, size, normed)
        given, options = (k, k, g, rates, starts, scales, norm), (size, normed, True)
        reads.backward(*given, reads.forward(*given, *options), *options)
    found = {(call.kernel.__module__, call.kernel.__name__): shared_bytes(call) for call in launched}
    assert len(found) == 4
    assert max(found.values()) <= SHARED_BYTES, found

"""Decays that leave nothing, in every family that takes or makes them: results as in float64, and gradients
that are finite, or zero where nothing is left."""

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import attention
from linbench.kernels.channel_decay import channel_decay
from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.decays import SCORE_FLOOR, bounded_for_scores
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.selective_scan import selective_scan
from linbench.kernels.two_sided import two_sided
from tests.helpers.gradients import error, results
from tests.helpers.matrix_state import RESETS

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("mended")]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TRITON = ["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []
TORCH = [] if INTERPRETED else ["torch"]
LARGE = [1e3, 1e12, 1e30, 3.4028234663852886e38]
"""Logits of decays, or steps, that leave nothing."""


@pytest.fixture
def normal(generator: torch.Generator) -> Any:
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).to(
        DEVICE, torch.float32
    )


def through_memory(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, **options: Any) -> list[Tensor]:
    o, state = matrix_state(q, k, v, log_decay=log_decay, **options)
    return [o, state]


@pytest.mark.parametrize("backend", [*TORCH, *TRITON])
@pytest.mark.parametrize("large", [*LARGE, math.inf])
def test_a_channel_decay_of_any_logit_has_a_gradient(normal: Any, backend: str, large: float) -> None:
    offset, base = normal(1, 20, 2 * 16), normal(2, 16)
    offset[:, [3, 9]] = large

    def decayed(offset: Tensor, base: Tensor, *heads: Tensor, backend: str) -> list[Tensor]:
        return through_memory(*heads, channel_decay(offset, base, backend=backend))

    heads = normal(1, 20, 2, 16), normal(1, 20, 2, 16), normal(1, 20, 2, 16)
    found = results(decayed, (offset, base, *heads), backend=backend)
    exact = results(decayed, [x.double() for x in (offset.clamp(max=80), base, *heads)], backend="torch")
    assert max(map(error, found, exact)) < 5e-5
    assert not found[2][:, [3, 9]].any()


@pytest.mark.parametrize("backend", [*TORCH, *TRITON])
@pytest.mark.parametrize("large", LARGE)
@pytest.mark.filterwarnings("ignore:overflow")  # of numpy, in the interpreter: the decay is -inf
def test_a_decay_gate_of_any_step_has_a_gradient(normal: Any, backend: str, large: float) -> None:
    step, rate, bias = normal(1, 20, 2), normal(2), normal(2)
    step[:, [3, 9]] = large

    def decayed(step: Tensor, rate: Tensor, bias: Tensor, *heads: Tensor, backend: str) -> list[Tensor]:
        return through_memory(*heads, decay_gate(step, rate, bias, backend=backend))

    heads = normal(1, 20, 2, 16), normal(1, 20, 2, 16), normal(1, 20, 2, 16)
    found = results(decayed, (step, rate, bias, *heads), backend=backend)
    exact = results(decayed, [x.double() for x in (step, rate, bias, *heads)], backend="torch")
    assert max(map(error, found, exact)) < 5e-5
    assert not found[2][:, [3, 9]].any()


@pytest.mark.parametrize("backend", [*(["reference", "chunkwise"] if not INTERPRETED else []), *TRITON])
@pytest.mark.parametrize("large", LARGE[:3])  # the gradient of a step that keeps all is as large as the rate
def test_a_selective_scan_forgets_all_at_once(normal: Any, backend: str, large: float) -> None:
    """The rates are large here, since a step as large would also write as much."""
    u, step, rate, write, read, state = (
        normal(2, 37, 3),
        F.softplus(normal(2, 37, 3)),
        -normal(3, 4).abs(),
        normal(2, 37, 4),
        normal(2, 37, 4),
        normal(2, 3, 4),
    )
    rate[1] = -large
    step[:, [0, 7, 8], 1] = 0.0  # which keeps all
    inputs = u, step, rate, write, read, state
    found = results(partial(selective_scan, backend=backend), inputs)
    exact = results(partial(selective_scan, backend="reference"), [x.double() for x in inputs])
    assert all(error(x, y) < 5e-5 for x, y in zip(found, exact, strict=True))


@pytest.mark.skipif(INTERPRETED, reason="it has no Triton form")
@pytest.mark.parametrize("backend", ["reference", "chunkwise"])
@pytest.mark.parametrize("reset", RESETS)
def test_decays_of_two_sides_reset_rows_and_columns(normal: Any, backend: str, reset: float) -> None:
    q, k, v, rows, columns = (
        normal(1, 70, 2, 8),
        normal(1, 70, 2, 8),
        normal(1, 70, 2, 6),
        -normal(1, 70, 2, 8).abs() / 20,
        -normal(1, 70, 2, 6).abs() / 20,
    )
    rows, columns = rows.double(), columns.double()
    rows[:, [5, 6, 40]] = columns[:, 20, :, ::2] = reset

    def remembered(
        q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, backend: str
    ) -> tuple[Tensor, Tensor]:
        return two_sided(q, k, v, key_log_decay=rows, value_log_decay=columns, backend=backend)

    found = results(remembered, (q, k, v, rows, columns), backend=backend)
    exact = results(remembered, [x.double() for x in (q, k, v, rows, columns)], backend="reference")
    assert max(map(error, found, exact)) < 5e-5
    assert not found[5][:, [5, 6, 40]].any()
    assert not found[6][:, 20, :, ::2].any()


@pytest.mark.parametrize("backend", [*(["reference", "dense"] if not INTERPRETED else []), *TRITON])
@pytest.mark.parametrize("reset", RESETS[1:])  # below the floor, where the gradient is exactly zero
def test_gates_of_attention_keep_packed_sequences_apart(normal: Any, backend: str, reset: float) -> None:
    heads, gates = (
        (normal(1, 70, 2, 16), normal(1, 70, 2, 16), normal(1, 70, 2, 16)),
        -normal(1, 70, 2).abs().double(),
    )
    gates[:, [0, 17, 18]] = reset

    def gated(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
        kept = bounded_for_scores(gates).cumsum(dim=1)
        return attention(q, k, v, kept=(kept, kept), backend=backend)

    found = results(gated, (*heads, gates))
    parts = [[x[:, first:end] for x in (*heads, gates)] for first, end in ((0, 17), (17, 18), (18, 70))]
    assert error(found[0], torch.cat([gated(*part) for part in parts], dim=1)) < 1e-5
    assert all(x.isfinite().all() for x in found)
    assert not found[4][:, [0, 17, 18]].any()


def test_log_gates_keep_their_value_up_to_the_floor_of_scores() -> None:
    gates = torch.tensor([0.0, -1e-3, -9999.0, -1e5, -1e30, -math.inf, math.nan])
    assert bounded_for_scores(gates)[:3].equal(gates[:3].double())
    assert (bounded_for_scores(gates)[3:6] == SCORE_FLOOR).all()
    assert bounded_for_scores(gates)[6].isnan()

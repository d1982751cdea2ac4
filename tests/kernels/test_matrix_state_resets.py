"""Tokens that reset the state, as they keep packed sequences apart: right to the last finite log decay and at
-inf, in every torch form."""

from typing import Any

import pytest
import torch

from linbench.kernels.decays import FLOORS, bounded
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.matrix_state.published import INSTANCES, apply, random_inputs
from tests.helpers.matrix_state import (
    RESETS,
    UPDATES,
    assert_resets,
    assert_sequences_lie_apart,
    draw,
    error,
    named,
    pairwise,
)

DECAYS, BACKENDS = ["scalar", "vector"], ["reference", "scan", "chunkwise"]
SIZES: dict[str, Any] = {"batch": 2, "heads": 2, "key_heads": 1, "key_dim": 8, "value_dim": 5, "state": True}


def rows(**factors: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", pairwise(**factors), ids=named)


@rows(
    form=[(update, decay) for update in UPDATES for decay in DECAYS],
    backend=BACKENDS,
    reset=RESETS,
    read=["after", "before"],
    steps=[1, 2],
    length=[1, 12, 40, 100],
    dtype=[torch.float32, torch.float64, torch.bfloat16],
)
def test_tokens_reset_the_state(row: dict[str, Any]) -> None:
    update, decay = row["form"]
    length = min(row["length"], 40) if row["backend"] == "scan" else row["length"]
    instance, inputs = draw(
        decay, update, row["read"], row["steps"], **SIZES, length=length, dtype=row["dtype"]
    )
    assert_resets(instance, inputs, row["reset"], row["backend"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("reset", RESETS)
def test_packed_sequences_are_as_each_alone(reset: float, decay: str, backend: str) -> None:
    instance = UPDATES["delta"]._replace(decay=decay)
    packed = random_inputs(instance, batch=1, length=50, heads=2, key_dim=8, value_dim=5)
    packed["log_decay"] = packed["log_decay"].double().index_fill(1, torch.tensor([0, 17, 18]), reset)
    whole, last = apply(instance, packed, backend=backend)
    for first, end in ((0, 17), (17, 18), (18, 50)):
        alone, state = apply(instance, {name: x[:, first:end] for name, x in packed.items()}, backend=backend)
        assert error(whole[:, first:end], alone) < 1e-5
    assert error(last, state) < 1e-5


@rows(
    form=[(update, decay) for update in UPDATES for decay in ("none", *DECAYS)],
    backend=BACKENDS,
    steps=[1, 2],
    lengths=[(1,), (17, 1, 32), (1, 63, 1, 65, 2), (100,)],
    dtype=[torch.float32, torch.float64, torch.bfloat16],
)
def test_sequences_of_different_lengths_lie_apart(row: dict[str, Any]) -> None:
    update, decay = row["form"]
    lengths = [min(n, 20) if row["backend"] == "scan" else n for n in row["lengths"]]
    sizes = SIZES | {"batch": 1, "state": False}
    instance, inputs = draw(
        decay, update, "after", row["steps"], **sizes, length=sum(lengths), dtype=row["dtype"]
    )
    assert_sequences_lie_apart(instance, inputs, lengths, row["backend"])


@pytest.mark.parametrize(
    ("places", "change", "reason"),
    [
        ([0, 4], {}, "rise from 0 to T = 5, not"),
        ([1, 5], {}, "rise from 0 to T = 5, not"),
        ([0, 3, 3, 5], {}, "rise from 0 to T = 5, not"),
        ([[0, 5]], {}, "for a batch of one, not torch.int64"),
        ([0.0, 5.0], {}, "for a batch of one, not torch.float32"),
        ([0], {}, "for a batch of one, not"),
        ([0, 5], {"batch": 2}, "for a batch of 2"),
        ([0, 5], {"state": True}, "without an initial state"),
    ],
)
def test_sequences_that_do_not_fit_are_refused(places: Any, change: dict[str, Any], reason: str) -> None:
    sizes = SIZES | {"batch": 1, "state": False} | change
    instance, inputs = draw("scalar", "delta", length=5, **sizes)
    with pytest.raises(ValueError, match=reason):
        apply(instance, inputs, cu_seqlens=torch.tensor(places))
    with pytest.raises(ValueError, match="read='after'"):
        apply(*draw("scalar", "delta", "before", length=5, **sizes), cu_seqlens=torch.tensor([0, 5]))


@pytest.mark.parametrize("dtype", FLOORS, ids=str)
def test_nothing_is_left_at_the_floor(dtype: torch.dtype) -> None:
    floor = torch.tensor(FLOORS[dtype], dtype=dtype)
    assert floor.exp() == 0
    given = torch.tensor([0.0, -1.0, float("nan"), -1e30, float("-inf")], dtype=dtype)
    assert bounded(given)[:2].equal(given[:2])
    assert bounded(given)[2].isnan()
    assert (bounded(given)[3:] == floor).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("decay", DECAYS)
def test_a_log_decay_that_is_not_a_number_is_not_taken_for_a_reset(decay: str, backend: str) -> None:
    inputs = random_inputs(
        INSTANCES["scalar_decay"]._replace(decay=decay), batch=1, length=9, heads=1, key_dim=4, value_dim=3
    )
    inputs["log_decay"][:, 4] = float("nan")
    o, state = matrix_state(
        inputs["q"], inputs["k"], inputs["v"], log_decay=inputs["log_decay"], backend=backend
    )
    assert o[:, 4:].isnan().all()
    assert state.isnan().all()

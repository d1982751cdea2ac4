"""Tokens that reset the state, in the Triton form: right to the last finite log decay and at -inf, with
gradients of exactly zero there."""

from typing import Any

import pytest
import torch

from linbench.kernels.matrix_state.published import apply, random_inputs
from tests.helpers.matrix_state import (
    RESETS,
    UPDATES,
    assert_resets,
    assert_sequences_lie_apart,
    decode,
    draw,
    error,
    force,
    named,
    pairwise,
    reference,
    resetting,
)

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("mended")]

DECAYS, SCHEDULES = ["scalar", "vector"], ["fused", "split", "joined"]
ONE: dict[str, Any] = {"batch": 1, "heads": 1, "key_dim": 16, "value_dim": 24, "state": True}


def rows(**factors: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", pairwise(**factors), ids=named)


@rows(
    form=[(update, decay) for update in UPDATES for decay in DECAYS],
    schedule=SCHEDULES,
    reset=RESETS,
    read=["after", "before"],
    steps=[1, 2],
    dtype=[torch.float32, torch.bfloat16],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_tokens_reset_the_state(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    force(monkeypatch, row["schedule"], chunk=16)
    update, decay = row["form"]
    instance, inputs = draw(
        decay, update, row["read"], row["steps"], **ONE, length=36 // row["steps"], dtype=row["dtype"]
    )
    assert_resets(instance, inputs, row["reset"], "triton")


@rows(
    form=[(update, decay) for update in UPDATES for decay in ("none", *DECAYS)],
    schedule=SCHEDULES,
    steps=[1, 2],
    lengths=[(1,), (17, 1, 15), (1, 2, 20)],
    dtype=[torch.float32, torch.bfloat16],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_sequences_of_different_lengths_lie_apart(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    force(monkeypatch, row["schedule"], chunk=16)
    update, decay = row["form"]
    sizes = ONE | {"length": sum(row["lengths"]), "state": False}
    instance, inputs = draw(decay, update, "after", row["steps"], **sizes, dtype=row["dtype"])
    assert_sequences_lie_apart(instance, inputs, row["lengths"], "triton")


@rows(update=UPDATES, decay=DECAYS, reset=RESETS)
def test_so_do_they_when_decoding(row: dict[str, Any]) -> None:
    instance, inputs = draw(row["decay"], row["update"], **ONE, length=4)
    inputs, _ = resetting(inputs, row["reset"])
    expected = reference(instance, inputs).outputs
    assert max(error(x, expected[which]) for which, x in decode(instance, inputs, "triton").items()) < 1e-5


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("decay", DECAYS)
def test_a_log_decay_that_is_not_a_number_is_not_taken_for_a_reset(
    monkeypatch: pytest.MonkeyPatch, decay: str, schedule: str
) -> None:
    force(monkeypatch, schedule, chunk=16)
    instance = UPDATES["add"]._replace(decay=decay)
    inputs = random_inputs(instance, **ONE, length=9)
    inputs["log_decay"][:, 4] = float("nan")
    o, state = apply(instance, inputs, backend="triton")
    assert o[:, 4:].isnan().all()
    assert state.isnan().all()

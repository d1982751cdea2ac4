"""The chunkwise form is the reference, whatever the form of the recurrence. What the recurrence itself is:
test_matrix_state_by_hand."""

import importlib
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.matrix_state.published import INSTANCES, Instance, apply, random_inputs
from tests.helpers.matrix_state import (
    DECAYS,
    EXTREMES,
    LIMITS,
    READS,
    UPDATES,
    Inputs,
    assert_parity,
    draw,
    error,
    excesses,
    forgetful,
    named,
    near_parallel,
    pairwise,
    reference,
    results,
)

SIZES: dict[str, Any] = {
    "batch": 2,
    "heads": 4,
    "key_heads": 2,
    "key_dim": 8,
    "value_dim": 5,
    "state": True,
    "dtype": torch.float64,
}
BACKENDS = ["reference", "scan", "chunkwise"]
LENGTHS = [1, 15, 17, 63, 65, 100, 257]
FORMS: dict[str, Any] = {"update": UPDATES, "decay": DECAYS, "read": READS, "steps": [1, 2]}

drawn = partial(draw, **SIZES)


def rows(**factors: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", pairwise(**factors), ids=named)


@pytest.fixture
def set_chunk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    chunkwise = importlib.import_module("linbench.kernels.matrix_state.chunkwise")

    def set_both(chunk: int) -> None:
        monkeypatch.setattr(chunkwise, "CHUNK", chunk)
        monkeypatch.setattr(chunkwise, "ALONE", chunk)

    return set_both


@rows(length=LENGTHS, **FORMS, state=[False, True], key_heads=[1, 2, 4])
def test_outputs_state_and_gradients_equal_the_reference(row: dict[str, Any]) -> None:
    assert_parity(*drawn(**row), "chunkwise")


@rows(length=[1, 2, 3, 8, 13], **FORMS, state=[False, True], key_heads=[1, 2, 4])
def test_so_do_those_of_a_scan(row: dict[str, Any]) -> None:
    assert_parity(*drawn(**row), "scan")


@pytest.mark.parametrize("form", list(product(DECAYS, UPDATES, READS, [1, 2])), ids=str)
def test_every_form_over_several_small_chunks(
    set_chunk: Callable[[int], None], form: tuple[Any, ...]
) -> None:
    set_chunk(4)
    assert_parity(*drawn(*form, length=7, batch=1, heads=2, key_heads=1), "chunkwise")


@rows(length=range(1, 11), update=UPDATES, decay=DECAYS, steps=[1, 2])
def test_every_length_around_small_chunks(set_chunk: Callable[[int], None], row: dict[str, Any]) -> None:
    set_chunk(4)
    assert_parity(*drawn(**row), "chunkwise")


def assert_parity_in_float32_too(instance: Instance, inputs: Inputs, limit: float) -> None:
    """`inputs` in float32."""
    expected = reference(instance, inputs)
    assert (
        excesses(
            results(instance, {name: x.double() for name, x in inputs.items()}, "chunkwise"),
            expected,
            LIMITS[torch.float64],
        )
        == {}
    )
    assert excesses(results(instance, inputs, "chunkwise"), expected, (limit, limit)) == {}


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("update", ["delta", "comba", "low rank"])
def test_near_parallel_keys_with_beta_near_two(update: str, decay: str) -> None:
    instance, inputs = drawn(decay, update, length=100, dtype=torch.float32)
    assert_parity_in_float32_too(instance, near_parallel(inputs), 1e-4)


@rows(length=[3, 65], extreme=EXTREMES, decay=["scalar", "vector"], update=UPDATES, read=READS)
def test_extreme_decays(row: dict[str, Any]) -> None:
    instance, inputs = drawn(
        row["decay"], row["update"], row["read"], length=row["length"], dtype=torch.float32
    )
    assert_parity_in_float32_too(instance, forgetful(inputs, row["extreme"]), 1e-5)


def tokens(inputs: Inputs, steps: int, first: int, end: int | None) -> Inputs:
    """Return the tokens from `first` up to `end`, and the state for a start without others."""
    per_step = {
        name: x[:, steps * first : None if end is None else steps * end] for name, x in inputs.items()
    }
    return (
        inputs
        | per_step
        | {name: inputs[name][:, first:end] for name in ("q", "log_decay") if name in inputs}
        | whole(inputs)
    )


def whole(inputs: Inputs) -> Inputs:
    """Return the inputs that do not come by token."""
    return {name: inputs[name] for name in ("bonus", "state") if name in inputs}


@pytest.mark.parametrize(("length", "points"), [(9, range(1, 9)), (70, (1, 63, 64, 65))], ids=["9", "70"])
@rows(backend=BACKENDS, **FORMS)
def test_splitting_and_carrying_the_state_equals_the_whole(
    row: dict[str, Any], length: int, points: tuple[int, ...]
) -> None:
    backend, steps = row["backend"], row["steps"]
    instance, inputs = drawn(**{name: row[name] for name in FORMS}, length=length)
    outputs, last = apply(instance, inputs, backend=backend)
    for point in points:
        first, state = apply(instance, tokens(inputs, steps, 0, point), backend=backend)
        second, state = apply(
            instance, tokens(inputs, steps, point, None) | {"state": state}, backend=backend
        )
        assert error(torch.cat([first, second], dim=1), outputs) < 1e-9
        assert error(state, last) < 1e-9


@rows(backend=BACKENDS, **FORMS)
def test_later_tokens_change_no_earlier_output(row: dict[str, Any]) -> None:
    backend, steps = row["backend"], row["steps"]
    form = {name: row[name] for name in FORMS}
    instance, inputs = drawn(**form, length=70)
    _, others = drawn(**form, length=70, seed=1)
    outputs, _ = apply(instance, inputs, backend=backend)
    for point in (1, 31, 64, 69):
        start, end = tokens(inputs, steps, 0, point), tokens(others, steps, point, None)
        changed = {name: torch.cat([x, end[name]], dim=1) for name, x in start.items()} | whole(inputs)
        given, _ = apply(instance, changed, backend=backend)
        assert torch.equal(given[:, :point], outputs[:, :point])
        assert not torch.equal(given[:, point:], outputs[:, point:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
@pytest.mark.parametrize("given", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_output_keeps_the_dtype_and_the_state_is_at_least_float32(
    instance: Instance, backend: str, given: torch.dtype
) -> None:
    inputs = random_inputs(instance, **SIZES | {"dtype": given}, length=5)
    from_nothing = {name: x for name, x in inputs.items() if name != "state"}
    for case in (inputs, from_nothing):
        o, state = apply(instance, case, backend=backend)
        assert (o.dtype, state.dtype) == (given, torch.promote_types(given, torch.float32))


@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
def test_bfloat16_loses_only_its_own_rounding(instance: Instance) -> None:
    inputs = random_inputs(instance, **SIZES | {"dtype": torch.bfloat16}, length=65)
    given, expected = results(instance, inputs, "chunkwise"), reference(instance, inputs)
    assert error(given.outputs["state"], expected.outputs["state"]) < 1e-6
    assert error(given.outputs["o"], expected.outputs["o"]) < 2**-8
    assert max(error(x, expected.gradients[name]) for name, x in given.gradients.items()) < 2**-8


@rows(backend=BACKENDS, **FORMS, state=[False, True])
def test_no_unwritten_memory_is_read(request: pytest.FixtureRequest, row: dict[str, Any]) -> None:
    backend = row["backend"]
    instance, inputs = drawn(**{name: row[name] for name in (*FORMS, "state")}, length=17)
    clean = results(instance, inputs, backend)
    request.getfixturevalue("poisoned_memory")
    poisoned = results(instance, inputs, backend)
    for given, expected in zip(poisoned, clean, strict=True):
        assert all(torch.equal(x, expected[name]) for name, x in given.items())


@rows(**FORMS)
def test_numerical_gradients_of_the_chunkwise_form(
    set_chunk: Callable[[int], None], row: dict[str, Any]
) -> None:
    set_chunk(2)
    instance, inputs = drawn(**row, length=3, batch=1, heads=1, key_heads=1, key_dim=2, value_dim=1)

    def function(*values: Tensor) -> tuple[Tensor, Tensor]:
        return apply(instance, dict(zip(inputs, values, strict=True)), backend="chunkwise")

    assert torch.autograd.gradcheck(function, tuple(x.requires_grad_() for x in inputs.values()))


@rows(backend=BACKENDS, **FORMS)
def test_what_is_given_is_not_written(row: dict[str, Any]) -> None:
    instance, inputs = drawn(**{name: row[name] for name in FORMS}, length=5)
    before = {name: x.clone() for name, x in inputs.items()}
    apply(instance, inputs, backend=row["backend"])
    assert all(torch.equal(x, before[name]) for name, x in inputs.items())

"""The chunkwise form under torch's transformations: it stacks replicas and compiles.

Its backward is its own, and without gradients nothing is kept for it.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from linbench.kernels.matrix_state.chunkwise import ALONE, CHUNK
from linbench.kernels.matrix_state.published import INSTANCES, apply, random_inputs
from tests.helpers.matrix_state import (
    Inputs,
    assert_parity,
    error,
    excesses,
    near_parallel,
    results,
    stacked,
    unstacked,
)

SMALL: dict[str, Any] = {"batch": 2, "heads": 4, "key_heads": 2, "key_dim": 8, "value_dim": 5}

drawn = partial(random_inputs, **SMALL)
# by torch.compile itself
traced = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
every_instance = pytest.mark.parametrize("name", INSTANCES)


@every_instance
@pytest.mark.parametrize("through", [("o",), ("state",)], ids=str)
@pytest.mark.parametrize(("length", "state"), [(5, False), (5, True), (ALONE + 1, False)])
def test_gradients_of_the_outputs_and_of_the_state_alone(
    name: str, through: tuple[str], length: int, state: bool
) -> None:
    assert_parity(
        INSTANCES[name],
        drawn(INSTANCES[name], length=length, state=state, dtype=torch.float64),
        "chunkwise",
        through=through,
    )


def test_a_checkpoint_computes_it_anew() -> None:
    inputs = drawn(INSTANCES["gated_deltanet"], length=40)

    def output(*given: Tensor) -> Tensor:
        named = dict(zip(inputs, given, strict=True))
        return apply(INSTANCES["gated_deltanet"], named, backend="chunkwise")[0]

    leaves = [x.requires_grad_() for x in inputs.values()]
    outputs = output(*leaves), checkpoint(output, *leaves, use_reentrant=False)
    expected, found = (torch.autograd.grad(o.square().sum(), leaves) for o in outputs)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", [name for name, instance in INSTANCES.items() if instance.update != "add"])
@pytest.mark.parametrize("length", [CHUNK, ALONE, 4 * CHUNK])
def test_near_parallel_keys_in_chunks_of_every_size(name: str, length: int) -> None:
    inputs = near_parallel(drawn(INSTANCES[name], length=length))
    given = results(INSTANCES[name], inputs, "chunkwise")
    expected = results(INSTANCES[name], {name: x.double() for name, x in inputs.items()}, "reference")
    assert not excesses(given, expected, (1e-4, 1e-4))


def shared_by_replicas() -> list[tuple[str, str | None]]:
    """One input that all replicas have in common, or none."""
    return [
        *((name, None) for name in INSTANCES),
        *(
            (name, shared)
            for name in ("rwkv6", "comba")
            for shared in drawn(INSTANCES[name], length=1, state=True)
        ),
    ]


def replicas(name: str, shared: str | None, dtype: torch.dtype) -> Inputs:
    first, second = (
        drawn(INSTANCES[name], length=5, state=True, dtype=dtype, seed=seed) for seed in range(2)
    )
    return {name: x if name == shared else torch.stack([x, second[name]]) for name, x in first.items()}


@pytest.mark.parametrize(("name", "shared"), shared_by_replicas())
def test_replicas_stack(name: str, shared: str | None) -> None:
    inputs = replicas(name, shared, torch.float64)
    given = results(INSTANCES[name], inputs, "chunkwise", run=stacked(shared))
    assert not excesses(
        given, results(INSTANCES[name], inputs, "chunkwise", run=unstacked(shared)), (1e-12, 1e-12)
    )


@pytest.mark.parametrize(("name", "shared"), shared_by_replicas())
def test_gradients_of_replicas_stack(name: str, shared: str | None) -> None:
    def loss(inputs: Inputs) -> Tensor:
        o, state = apply(INSTANCES[name], inputs, backend="chunkwise")
        return (o**2).sum() + (state**3).sum()

    inputs = replicas(name, shared, torch.float64)
    given = torch.vmap(
        torch.func.grad(loss), in_dims=({name: None if name == shared else 0 for name in inputs},)
    )(inputs)
    for n in range(2):
        expected = torch.func.grad(loss)({name: x if name == shared else x[n] for name, x in inputs.items()})
        assert max(error(given[name][n], x) for name, x in expected.items()) < 1e-12


@traced
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gated_deltanet", "rwkv6", "comba", "rwkv7"])
def test_it_compiles_whole(name: str) -> None:
    torch._dynamo.reset()
    inputs = drawn(INSTANCES[name], length=5, state=True)
    compiled = torch.compile(apply, fullgraph=True, backend="aot_eager")
    expected = results(INSTANCES[name], inputs, "chunkwise")
    assert not excesses(results(INSTANCES[name], inputs, "chunkwise", run=compiled), expected, (1e-6, 1e-6))
    with torch.no_grad():
        o, state = compiled(INSTANCES[name], inputs, backend="chunkwise")
    assert error(o, expected.outputs["o"]) < 1e-6
    assert error(state, expected.outputs["state"]) < 1e-6


@traced
@pytest.mark.slow
def test_what_was_compiled_takes_another_length() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(apply, fullgraph=True, backend="aot_eager")
    for length in (3, 17, ALONE + 1):
        assert_parity(
            INSTANCES["gated_deltanet"],
            drawn(INSTANCES["gated_deltanet"], length=length),
            "chunkwise",
            run=compiled,
        )


@every_instance
@pytest.mark.parametrize("length", [5, ALONE + 1])
def test_without_gradients_the_results_are_the_same_and_nothing_is_kept(name: str, length: int) -> None:
    inputs = drawn(INSTANCES[name], length=length, state=True)
    expected = results(INSTANCES[name], inputs, "chunkwise").outputs
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda _: None):
        o, state = apply(INSTANCES[name], inputs, backend="chunkwise")
        with torch.no_grad():
            apply(
                INSTANCES[name], {name: x.requires_grad_() for name, x in inputs.items()}, backend="chunkwise"
            )
    assert kept == []
    assert torch.equal(o, expected["o"])
    assert torch.equal(state, expected["state"])


@pytest.mark.parametrize("name", ["gated_deltanet", "rwkv7"])
def test_only_some_inputs_want_gradients(name: str) -> None:
    inputs = drawn(INSTANCES[name], length=5, state=True)
    expected = results(INSTANCES[name], inputs, "chunkwise", through=["state"]).gradients
    for wanted in inputs:
        leaf = inputs[wanted].clone().requires_grad_()
        _, state = apply(INSTANCES[name], inputs | {wanted: leaf}, backend="chunkwise")
        generator = torch.Generator().manual_seed(0)
        (state * torch.randn(state.shape, generator=generator).bfloat16().to(state)).sum().backward()
        assert error(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad, expected[wanted]) < 1e-6

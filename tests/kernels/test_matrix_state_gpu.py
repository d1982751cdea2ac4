"""The Triton form as a GPU runs it, at the launches that the rule chooses there.

Nearly all of the time is compilation: spread over processes (pytest-xdist), `python -m pytest
tests/kernels/test_matrix_state_gpu.py -n 16`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.matrix_state.published import INSTANCES, apply, random_inputs
from tests.helpers.matrix_state import (
    DECAYS,
    DEVICE,
    EXTREMES,
    LIMITS,
    READS,
    RESETS,
    UPDATES,
    Inputs,
    assert_parity,
    assert_resets,
    decode,
    draw,
    error,
    excesses,
    forgetful,
    named,
    near_parallel,
    pairwise,
    reference,
    resetting,
    results,
    stacked,
    unstacked,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    # the captured step and the one it is compared with run on two streams
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node"),
    pytest.mark.filterwarnings("ignore:.*torch.jit"),  # inductor's own, as the next
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]

WIDTHS = [16, 32, 39, 64, 100, 128, 256]
DTYPES = [torch.float32, torch.bfloat16]
DECAYING = [name for name, instance in INSTANCES.items() if instance.decay != "none"]
RECALLING = [name for name, instance in INSTANCES.items() if instance.update != "add"]
SOME = ["rwkv6", "gated_deltanet", "comba", "rwkv7"]
CLOSE = (1e-6, 1e-6)
"""Two ways to the same numbers."""

some = pytest.mark.parametrize("name", SOME)
drawn = partial(random_inputs, key_dim=32, value_dim=64, heads=2, device=DEVICE, state=True)


def rows(**factors: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", pairwise(**factors), ids=named)


def batch(full: bool) -> int:
    """One sequence, or as many as more than fill the device with one program for each of two heads, so that
    chunks need not run side by side."""
    return torch.cuda.get_device_properties(DEVICE).multi_processor_count // 2 + 1 if full else 1


@rows(
    instance=INSTANCES,
    key_dim=WIDTHS,
    value_dim=WIDTHS,
    lengths=[(1,), (15,), (17,), (63, 65), (100, 257)],
    dtype=DTYPES,
    full=[False, True],
    key_heads=[1, 2],
    state=[False, True],
    through=[("o", "state"), ("o",), ("state",)],
)
def test_outputs_state_and_gradients_equal_the_reference(row: dict[str, Any]) -> None:
    instance = INSTANCES[row["instance"]]
    # wider states never have a program to themselves
    full = row["full"] and max(row["key_dim"], row["value_dim"]) <= 64
    sizes = {name: row[name] for name in ("key_dim", "value_dim", "key_heads", "dtype", "state")}
    for length in row["lengths"]:
        # in one sequence of one token, a gradient is a few numbers, and may vanish by chance
        inputs = random_inputs(
            instance,
            **sizes,
            batch=max(batch(full), 8 if length == 1 else 1),
            length=length,
            heads=2,
            device=DEVICE,
        )
        assert_parity(instance, inputs, "triton", through=row["through"])


@rows(update=UPDATES, decay=DECAYS, read=READS, steps=[1, 2], full=[False, True], dtype=DTYPES)
def test_every_switch(row: dict[str, Any]) -> None:
    form = {name: row[name] for name in ("update", "decay", "read", "steps", "dtype")}
    assert_parity(
        *draw(
            **form,
            batch=batch(row["full"]),
            length=100,
            heads=2,
            key_dim=32,
            value_dim=32,
            state=True,
            device=DEVICE,
        ),
        "triton",
    )


@rows(
    decay=DECAYS,
    steps=[1, 2],
    width=[25, 39, 40, 64, 100],
    neg_eigval=[False, True],
    full=[False, True],
    gradient=[False, True],
    dtype=DTYPES,
)
def test_delta_rules_of_any_width(row: dict[str, Any]) -> None:
    """Beta below 1 rounds writes as values are, and no gradient keeps less: launches of their own."""
    instance, inputs = draw(
        row["decay"],
        "delta",
        steps=row["steps"],
        batch=batch(row["full"]),
        length=256,
        heads=2,
        **dict.fromkeys(("key_dim", "value_dim"), row["width"]),
        state=True,
        dtype=row["dtype"],
        device=DEVICE,
    )
    instance = instance._replace(neg_eigval=row["neg_eigval"])
    inputs["beta"] = inputs["beta"] / (1 if row["neg_eigval"] else 2)
    if row["gradient"]:
        assert_parity(instance, inputs, "triton")
    else:
        expected = reference(instance, inputs).outputs
        with torch.no_grad():
            made = dict(zip(("o", "state"), apply(instance, inputs, backend="triton"), strict=True))
        assert all(error(made[name], expected[name]) < LIMITS[row["dtype"]][0] for name in made)


@rows(instance=DECAYING, extreme=EXTREMES, full=[False, True], dtype=DTYPES)
def test_extreme_decays(row: dict[str, Any]) -> None:
    instance = INSTANCES[row["instance"]]
    assert_parity(
        instance,
        forgetful(drawn(instance, batch=batch(row["full"]), length=100, dtype=row["dtype"]), row["extreme"]),
        "triton",
    )


@rows(
    form=[(update, decay) for update in UPDATES for decay in DECAYS if decay != "none"],
    reset=RESETS,
    read=["after", "before"],
    steps=[1, 2],
    width=[32, 64, 128],
    full=[False, True],
    dtype=DTYPES,
)
def test_tokens_reset_the_state(row: dict[str, Any]) -> None:
    """The cases of `interpreted/test_matrix_state_resets.py`, at the launches of this device."""
    (update, decay), width = row["form"], row["width"]
    sizes = {
        "batch": batch(row["full"] and width <= 64),
        "heads": 2,
        "key_dim": width,
        "value_dim": width,
        "state": True,
        "device": DEVICE,
    }
    instance, inputs = draw(decay, update, row["read"], row["steps"], **sizes, length=100, dtype=row["dtype"])
    assert_resets(instance, inputs, row["reset"], "triton")


@rows(update=UPDATES, decay=["scalar", "vector"], reset=RESETS)
def test_they_do_so_when_decoding(row: dict[str, Any]) -> None:
    instance, inputs = draw(
        row["decay"],
        row["update"],
        batch=2,
        heads=2,
        key_dim=32,
        value_dim=64,
        state=True,
        device=DEVICE,
        length=4,
    )
    inputs, _ = resetting(inputs, row["reset"])
    expected = reference(instance, inputs).outputs
    assert max(error(x, expected[which]) for which, x in decode(instance, inputs, "triton").items()) < 1e-5


@rows(instance=RECALLING, full=[False, True])
def test_near_parallel_keys_with_beta_near_two(row: dict[str, Any]) -> None:
    instance = INSTANCES[row["instance"]]
    assert_parity(instance, near_parallel(drawn(instance, batch=batch(row["full"]), length=100)), "triton")


@pytest.mark.parametrize("name", INSTANCES)
def test_decoding_token_by_token(name: str) -> None:
    inputs = drawn(INSTANCES[name], batch=4, length=3)
    expected = reference(INSTANCES[name], inputs).outputs
    assert (
        max(error(x, expected[which]) for which, x in decode(INSTANCES[name], inputs, "triton").items())
        < 1e-5
    )


@rows(instance=INSTANCES, full=[False, True], dtype=DTYPES)
def test_no_unwritten_memory_is_read(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    # without it torch refuses to be deterministic, and to poison
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    instance = INSTANCES[row["instance"]]
    inputs = drawn(instance, batch=batch(row["full"]), length=65, dtype=row["dtype"])
    clean = results(instance, inputs, "triton")
    request.getfixturevalue("poisoned_memory")
    assert torch.empty(3, device=DEVICE).isnan().all()
    assert not excesses(results(instance, inputs, "triton"), clean, CLOSE)


@rows(instance=INSTANCES, full=[False, True], dtype=DTYPES)
def test_a_cuda_graph_replays_it_with_other_values(row: dict[str, Any], replayed: Callable[..., Any]) -> None:
    instance = INSTANCES[row["instance"]]
    inputs, others = (
        drawn(instance, batch=batch(row["full"]), length=65, dtype=row["dtype"], seed=seed)
        for seed in range(2)
    )
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}

    def step() -> Inputs:
        o, state = apply(instance, leaves, backend="triton")
        gradients = torch.autograd.grad(
            o.float().square().sum() + state.square().sum(), list(leaves.values())
        )
        return {"o": o, "state": state, **dict(zip(leaves, gradients, strict=True))}

    captured = replayed(step, leaves.values(), (others[name] for name in leaves))
    expected = step()
    assert max(error(x, expected[name]) for name, x in captured.items()) < 1e-6


@some
def test_tensors_may_begin_anywhere(name: str) -> None:
    inputs = drawn(INSTANCES[name], batch=2, length=65)
    shifted = {
        which: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape) for which, x in inputs.items()
    }
    with torch.no_grad():
        expected, given = (
            [apply(INSTANCES[name], x, backend="triton") for _ in range(2)] for x in (inputs, shifted)
        )
    assert max(error(x, y) for run in given for x, y in zip(run, expected[0], strict=True)) < 1e-6


@some
def test_it_compiles_whole(name: str) -> None:
    torch._dynamo.reset()
    inputs = drawn(INSTANCES[name], batch=2, length=65)
    given = results(INSTANCES[name], inputs, "triton", run=torch.compile(apply, fullgraph=True))
    assert not excesses(given, results(INSTANCES[name], inputs, "triton"), CLOSE)


def test_what_was_compiled_takes_another_length() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(apply, fullgraph=True)
    for length in (3, 17, 65, 100):
        assert_parity(
            INSTANCES["gated_deltanet"],
            drawn(INSTANCES["gated_deltanet"], batch=2, length=length),
            "triton",
            run=compiled,
        )


@some
@pytest.mark.parametrize("shared", [None, "k"])
def test_replicas_stack(name: str, shared: str | None) -> None:
    instance = INSTANCES[name]
    replicas = [drawn(instance, batch=2, length=65, seed=seed) for seed in range(3)]
    inputs = {
        x: value if x == shared else torch.stack([replica[x] for replica in replicas])
        for x, value in replicas[0].items()
    }
    given = results(instance, inputs, "triton", run=stacked(shared))
    assert not excesses(
        given, results(instance, inputs, "triton", run=unstacked(shared)), LIMITS[torch.float32]
    )


@some
def test_without_gradients_the_results_are_the_same(name: str) -> None:
    inputs = drawn(INSTANCES[name], batch=2, length=65)
    expected = results(INSTANCES[name], inputs, "triton").outputs
    with torch.no_grad():
        o, state = apply(INSTANCES[name], inputs, backend="triton")
    assert error(o, expected["o"]) < 1e-6
    assert error(state, expected["state"]) < 1e-6


def test_a_sequence_beyond_what_int32_counts() -> None:
    """16.4 GiB of queries, keys, values and outputs; what is more than 2,048 tokens old has been
    forgotten."""
    q, k, v = (torch.randn(1, 2**20 + 70, 16, 128, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    log_decay = torch.full((1, 1, 16), -0.1, device=DEVICE)
    with torch.no_grad():
        o, state = matrix_state(q, k, v, log_decay=log_decay)
        late, late_state = matrix_state(*(x[:, -3000:].contiguous() for x in (q, k, v)), log_decay=log_decay)
    assert error(o[:, -900:], late[:, -900:]) < LIMITS[torch.bfloat16][0]
    assert error(state, late_state) < LIMITS[torch.bfloat16][0]


@pytest.mark.parametrize("name", ["scalar_decay", "gated_deltanet", "kda", "rwkv7"])
@pytest.mark.parametrize(
    ("length", "key_dim"), [(1, 16), (9, 16), (17, 80)], ids=["recurrent", "fused", "split"]
)
def test_more_recurrences_than_a_grid_is_high(name: str, length: int, key_dim: int) -> None:
    times = 80
    few = random_inputs(
        INSTANCES[name],
        batch=500,
        length=length,
        heads=2,
        key_dim=key_dim,
        value_dim=16,
        state=True,
        device=DEVICE,
    )
    many = {given: x.repeat(times, *[1] * (x.dim() - 1)) for given, x in few.items()}
    with torch.set_grad_enabled(length > 1):
        leaves = {given: x.requires_grad_(length > 1) for given, x in many.items()}
        made = dict(zip(("o", "last"), apply(INSTANCES[name], leaves), strict=True))
        if length > 1:
            made |= dict(
                zip(leaves, torch.autograd.grad(made["o"].square().sum(), list(leaves.values())), strict=True)
            )
            few = {given: x.requires_grad_() for given, x in few.items()}
        alone = apply(INSTANCES[name], few)
    for x in made.values():
        assert torch.equal(
            *torch.broadcast_tensors(x.detach().unflatten(0, (times, -1)), x.detach()[: len(x) // times])
        )
    assert torch.allclose(made["o"][: len(alone[0])], alone[0], rtol=1e-4, atol=1e-4)

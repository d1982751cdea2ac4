"""The Triton form is the reference, by either schedule and whatever the form of the recurrence, up to the
rounding of its inputs."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.kernels.matrix_state.cases import VARIATIONS
from linbench.kernels.matrix_state.published import INSTANCES, apply, random_inputs
from tests.helpers.matrix_state import (
    DECAYS,
    EXTREMES,
    LIMITS,
    READS,
    UPDATES,
    assert_parity,
    decode,
    draw,
    error,
    excesses,
    force,
    forgetful,
    named,
    near_parallel,
    pairwise,
    reference,
    results,
    stacked,
    unstacked,
)

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("mended")]

SCHEDULES = ["fused", "split", "joined"]
HEADS = {"one head": (1, 1, 1), "two sequences": (2, 1, 1), "two heads": (1, 2, 1)}
DECAYING = [name for name, instance in INSTANCES.items() if instance.decay != "none"]
RECALLING = [name for name, instance in INSTANCES.items() if instance.update != "add"]
SOME = ["rwkv6", "gated_deltanet", "comba", "rwkv7"]
ONE: dict[str, Any] = {"batch": 1, "heads": 1, "key_dim": 16, "value_dim": 24}

schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def rows(**factors: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", pairwise(**factors), ids=named)


@rows(
    instance=[(name, schedule) for name in INSTANCES for schedule in SCHEDULES],
    length=[(1, torch.float32), (17, torch.float32), (33, torch.bfloat16)],
    chunk=[16, 32],
    heads=HEADS,
    dims=[(16, 24), (24, 16)],
    blocks=[(16, 16, 16), (16, 32, 16), (32, 16, 32)],
    state=[True, False],
    through=[("o", "state"), ("o",), ("state",)],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_outputs_state_and_gradients_equal_the_reference(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    name, schedule = row["instance"]
    batch, heads, key_heads = HEADS[row["heads"]]
    key_dim, value_dim = row["dims"]
    length, dtype = row["length"]
    sizes = {
        "batch": batch,
        "length": length,
        "heads": heads,
        "key_heads": key_heads,
        "key_dim": key_dim,
        "value_dim": value_dim,
    }
    inputs = random_inputs(INSTANCES[name], **sizes, state=row["state"], dtype=dtype)
    blocks = dict(zip(("key_block", "value_block", "pass_values"), row["blocks"], strict=True))
    force(monkeypatch, schedule, chunk=row["chunk"], **blocks)
    assert_parity(INSTANCES[name], inputs, "triton", through=row["through"])


@pytest.mark.parametrize("name", [name for name, instance in INSTANCES.items() if instance.update == "add"])
@pytest.mark.usefixtures("poisoned_memory")
def test_sums_walk_with_some_of_the_rows_of_their_state(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    force(monkeypatch, "split", chunk=16, pass_keys=16, pass_values=16)
    inputs = random_inputs(INSTANCES[name], batch=1, length=50, heads=2, key_dim=40, value_dim=24, state=True)
    assert_parity(INSTANCES[name], inputs, "triton")


@rows(schedule=SCHEDULES, update=UPDATES, decay=DECAYS, read=READS, steps=[1, 2])
@pytest.mark.usefixtures("poisoned_memory")
def test_every_switch(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    force(monkeypatch, row["schedule"], chunk=16)
    form = {name: row[name] for name in ("update", "decay", "read", "steps")}
    assert_parity(*draw(**form, **ONE, length=17 // row["steps"] + 1, state=True), "triton")


@pytest.mark.parametrize("schedule", ["fused", "split"])
@pytest.mark.parametrize("name", INSTANCES)
def test_several_sequences_of_several_key_heads(
    monkeypatch: pytest.MonkeyPatch, name: str, schedule: str
) -> None:
    force(monkeypatch, schedule)
    inputs = random_inputs(
        INSTANCES[name], batch=2, length=2, heads=4, key_heads=2, key_dim=16, value_dim=16, state=True
    )
    assert_parity(INSTANCES[name], inputs, "triton")


@schedules
@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("name", ["linear_attention", "scalar_decay", "gla"])
def test_a_scale_that_has_no_logarithm(
    monkeypatch: pytest.MonkeyPatch, name: str, scale: float, schedule: str
) -> None:
    force(monkeypatch, schedule, chunk=16)
    inputs = random_inputs(INSTANCES[name], **ONE, length=17, state=True)

    def scaled(_: Any, given: dict[str, Tensor], backend: Any) -> tuple[Tensor, Tensor]:
        return matrix_state(
            given["q"],
            given["k"],
            given["v"],
            log_decay=given.get("log_decay"),
            state=given["state"],
            scale=scale,
            backend=backend,
        )

    expected = results(
        INSTANCES[name], {which: x.double() for which, x in inputs.items()}, "reference", run=scaled
    )
    assert not excesses(
        results(INSTANCES[name], inputs, "triton", run=scaled), expected, LIMITS[torch.float32]
    )


@rows(
    instance=DECAYING,
    schedule=SCHEDULES,
    extreme=EXTREMES,
    chunk=[16, 32],
    dtype=[torch.float32, torch.bfloat16],
)
def test_extreme_decays(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    instance = INSTANCES[row["instance"]]
    force(monkeypatch, row["schedule"], chunk=row["chunk"])
    inputs = random_inputs(instance, **ONE, length=33, state=True, dtype=row["dtype"])
    assert_parity(instance, forgetful(inputs, row["extreme"]), "triton")


@rows(instance=RECALLING, schedule=SCHEDULES, state=[False, True])
def test_near_parallel_keys_with_beta_near_two(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    instance = INSTANCES[row["instance"]]
    # as in float32 always: of longer ones it depends on the processor's matrix products who is within the
    # limits
    force(monkeypatch, row["schedule"], chunk=16)
    assert_parity(
        instance, near_parallel(random_inputs(instance, **ONE, length=65, state=row["state"])), "triton"
    )


@schedules
@pytest.mark.parametrize("name", ["deltanet", "gated_deltanet", "gated_deltaproduct"])
def test_so_do_bfloat16_keys_a_thousandth_apart(
    monkeypatch: pytest.MonkeyPatch, name: str, schedule: str
) -> None:
    """The inputs with which `linbench doctor` verifies a GPU, of one head of them, in the chunks that the
    launch rule chooses there."""
    force(
        monkeypatch,
        schedule,
        chunk=32 if schedule == "fused" else 64,
        key_block=64,
        value_block=64,
        pass_values=64,
    )
    case = VARIATIONS["near-parallel keys, beta 1.99"]
    instance = INSTANCES[name]._replace(neg_eigval=case.neg_eigval)
    inputs = case.change(
        random_inputs(instance, **case.gpu._replace(batch=1, heads=1)._asdict(), dtype=torch.float64)
    )
    assert_parity(
        instance,
        {
            which: x.to(torch.float32 if which in ("beta", "log_decay") else torch.bfloat16)
            for which, x in inputs.items()
        },
        "triton",
    )


@pytest.mark.parametrize("more", [{}, {"heads": 4, "key_heads": 2}], ids=["one head", "shared keys"])
@pytest.mark.parametrize("name", INSTANCES)
def test_decoding_token_by_token(name: str, more: dict[str, Any]) -> None:
    inputs = random_inputs(INSTANCES[name], **ONE | more, length=3, state=True)
    expected = reference(INSTANCES[name], inputs).outputs
    assert (
        max(error(x, expected[which]) for which, x in decode(INSTANCES[name], inputs, "triton").items())
        < 1e-5
    )


@schedules
@pytest.mark.parametrize("name", SOME)
@pytest.mark.usefixtures("poisoned_memory")
def test_without_gradients_the_results_are_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, schedule: str
) -> None:
    force(monkeypatch, schedule, chunk=16)
    inputs = random_inputs(INSTANCES[name], **ONE, length=15)
    expected = results(INSTANCES[name], inputs, "triton").outputs
    with torch.no_grad():
        o, state = apply(INSTANCES[name], inputs, backend="triton")
    assert torch.equal(o, expected["o"])
    assert torch.equal(state, expected["state"])


@schedules
@pytest.mark.parametrize(
    ("name", "length"),
    [
        *((name, 17) for name in SOME),
        *((name, 9) for name, instance in INSTANCES.items() if instance.update == "add"),
    ],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_without_a_final_state_outputs_and_gradients_are_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, length: int, schedule: str
) -> None:
    force(monkeypatch, schedule, chunk=16)
    inputs = {
        which: x.requires_grad_() for which, x in random_inputs(INSTANCES[name], **ONE, length=length).items()
    }
    found = []
    for final in (True, False):
        o, state = apply(INSTANCES[name], inputs, final=final, backend="triton")
        assert (state is not None) == final
        found.append([o, *torch.autograd.grad(o.sin().sum(), list(inputs.values()))])
    assert all(map(torch.equal, *found))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The problems that kernels are given for the first time."""
    module = importlib.import_module("linbench.kernels.matrix_state.triton")
    problems: list[Any] = []
    taken = module._kernel_arguments
    monkeypatch.setattr(module.plan, "known", {})
    monkeypatch.setattr(
        module, "_kernel_arguments", lambda problem: problems.append(problem) or taken(problem)
    )
    return problems


@pytest.mark.parametrize("name", ["linear_attention", "rwkv6", "comba", "gated_deltaproduct", "rwkv7"])
@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.usefixtures("poisoned_memory")
def test_what_is_too_long_to_count_goes_in_pieces(
    monkeypatch: pytest.MonkeyPatch, given: list[Any], name: str, is_traced: bool
) -> None:
    module = importlib.import_module("linbench.kernels.matrix_state.triton")
    monkeypatch.setattr(module, "is_traced", lambda: is_traced)
    monkeypatch.setattr(module, "_COUNTED", 24 * 8 * INSTANCES[name].steps + 1)
    inputs = random_inputs(INSTANCES[name], **ONE | {"batch": 2}, length=19, state=True)
    assert_parity(INSTANCES[name], inputs, "triton")
    assert {problem.q.shape[1] for problem in given} == {8, 3}
    o, state = apply(INSTANCES[name], inputs, final=False, backend="triton")
    assert state is None
    assert error(o, reference(INSTANCES[name], inputs).outputs["o"]) < 1e-5


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize(("key_dim", "value_dim"), [(17, 24), (16, 9), (13, 25)])
@pytest.mark.usefixtures("poisoned_memory")
def test_of_odd_heads_kernels_get_a_zero_more(
    given: list[Any], name: str, key_dim: int, value_dim: int
) -> None:
    inputs = random_inputs(
        INSTANCES[name],
        batch=1,
        length=19,
        heads=2,
        key_heads=1,
        key_dim=key_dim,
        value_dim=value_dim,
        state=True,
        dtype=torch.bfloat16,
    )
    assert_parity(INSTANCES[name], inputs, "triton")
    assert {(problem.k.shape[3], problem.v.shape[3]) for problem in given} == {
        (key_dim + key_dim % 2, value_dim + value_dim % 2)
    }


@pytest.mark.parametrize("shape", [(16,), (2, 1), (2, 16)])
def test_a_bonus_that_broadcasts(shape: tuple[int, ...]) -> None:
    inputs = random_inputs(INSTANCES["rwkv6"], batch=2, length=7, heads=2, key_dim=16, value_dim=16)
    bonus = inputs["bonus"][0] if len(shape) == 1 else inputs["bonus"][:, : shape[1]]
    assert_parity(INSTANCES["rwkv6"], inputs | {"bonus": bonus}, "triton")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_views_gates_that_broadcast_and_gates_in_the_dtype_of_the_rest(dtype: torch.dtype) -> None:
    instance = INSTANCES["gated_deltanet"]
    inputs = random_inputs(
        instance, batch=2, length=5, heads=2, key_dim=16, value_dim=16, state=True, dtype=dtype
    )
    views = {name: x.transpose(0, 1).contiguous().transpose(0, 1) for name, x in inputs.items()}
    assert not any(x.is_contiguous() for x in views.values())
    gates = {"log_decay": inputs["log_decay"][:, :1], "beta": inputs["beta"][0, 0]}
    assert_parity(instance, views | {name: x.to(dtype) for name, x in gates.items()}, "triton")


@pytest.mark.parametrize(
    ("name", "shared", "dtype"),
    [
        *(("gated_deltanet", shared, torch.float32) for shared in (None, "q", "log_decay", "beta", "state")),
        ("gated_deltanet", "v", torch.bfloat16),
        ("rwkv6", None, torch.float32),
        ("rwkv6", "bonus", torch.float32),
        ("gated_deltaproduct", "k", torch.float32),
        ("comba", "erase_key", torch.float32),
        ("rwkv7", "a", torch.bfloat16),
    ],
)
def test_replicas_stack(name: str, shared: str | None, dtype: torch.dtype) -> None:
    """`shared`: the one input that all replicas have in common."""
    instance = INSTANCES[name]
    replicas = [
        random_inputs(instance, **ONE, length=3, state=True, dtype=dtype, seed=seed) for seed in range(2)
    ]
    inputs = {
        name: x if name == shared else torch.stack([x, replicas[1][name]]) for name, x in replicas[0].items()
    }
    given = results(instance, inputs, "triton", run=stacked(shared))
    expected = results(instance, inputs, "triton", run=unstacked(shared))
    assert not excesses(given, expected, (1e-6, 1e-6 if dtype == torch.float32 else 1e-2))


@pytest.mark.parametrize("name", SOME)
def test_it_compiles_whole(name: str) -> None:
    torch._dynamo.reset()
    inputs = random_inputs(INSTANCES[name], **ONE, length=3, state=True)
    expected = results(INSTANCES[name], inputs, "triton")
    given = results(
        INSTANCES[name], inputs, "triton", run=torch.compile(apply, fullgraph=True, backend="aot_eager")
    )
    assert not excesses(given, expected, (1e-6, 1e-6))


def test_what_was_compiled_takes_another_length() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(apply, fullgraph=True, backend="aot_eager")
    for length in (3, 17, 20):
        inputs = random_inputs(INSTANCES["gated_deltanet"], **ONE, length=length)
        assert_parity(INSTANCES["gated_deltanet"], inputs, "triton", run=compiled)


def test_what_was_compiled_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    door = importlib.import_module("linbench.kernels.matrix_state")
    monkeypatch.setitem(door._BACKENDS, "triton", door._triton)  # as before the first call
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(apply, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        compiled(INSTANCES["gla"], random_inputs(INSTANCES["gla"], **ONE, length=3), backend="triton")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(
    ("name", "heads"), [*((name, 1) for name in INSTANCES), ("gated_deltanet", 2), ("rwkv7", 2)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@schedules
def test_what_a_call_launches_both_ways_is_compiled_with_the_first(
    monkeypatch: pytest.MonkeyPatch, name: str, heads: int, dtype: torch.dtype, schedule: str
) -> None:
    force(monkeypatch, schedule, chunk=16)
    module = importlib.import_module("linbench.kernels.matrix_state.triton.launches")
    together: list[Any] = []
    launched: list[Any] = []

    def note(call: Any, steps: Any) -> None:
        for step in steps:
            arguments = tuple(x.dtype if isinstance(x, Tensor) else x for x in step.arguments(call.views()))
            launched.append((step.kernel, step.grid, arguments, step.options))

    monkeypatch.setattr(module, "compile_together", lambda calls, device: together.append(calls))
    monkeypatch.setattr(module.Call, "run", note)
    inputs = random_inputs(
        INSTANCES[name],
        batch=1,
        length=19,
        heads=heads,
        key_heads=1,
        key_dim=16,
        value_dim=24,
        state=True,
        dtype=dtype,
    )
    results(INSTANCES[name], inputs, "triton", through=("o",))
    assert together == [launched]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[Any, tuple[Any, ...]]:
    """Record the arguments that each operator is last called with."""
    triton, operator = map(
        importlib.import_module,
        ("linbench.kernels.matrix_state.triton", "linbench.kernels.matrix_state.triton.operator"),
    )
    found = {}

    def watched(called: Any) -> Any:
        def call(*args: Any) -> Any:
            found[called] = args
            return called(*args)

        return call

    monkeypatch.setattr(triton, "is_traced", lambda: True)
    monkeypatch.setattr(triton, "forward", watched(operator.forward))
    monkeypatch.setattr(operator, "backward", watched(operator.backward))
    return found


@pytest.mark.parametrize(("name", "heads"), [("gated_deltanet", 2), ("rwkv7", 1)])
def test_the_operators_keep_what_torch_asks_of_them(
    calls: dict[Any, tuple[Any, ...]], name: str, heads: int
) -> None:
    inputs = random_inputs(
        INSTANCES[name], batch=1, length=3, heads=heads, key_heads=1, key_dim=16, value_dim=16, state=True
    )
    results(INSTANCES[name], inputs, "triton")
    assert len(calls) == 2
    for operator, args in dict(calls).items():  # checking one calls the other again
        differentiable = "backward" not in operator.name
        leaves = [
            x.detach().clone().requires_grad_(differentiable) if isinstance(x, Tensor) else x for x in args
        ]
        torch.library.opcheck(operator.packet, tuple(leaves))


def test_a_gradient_has_none() -> None:
    inputs = random_inputs(INSTANCES["gated_deltanet"], **ONE, length=3)
    leaf = inputs["v"].requires_grad_()
    (gradient,) = torch.autograd.grad(
        apply(INSTANCES["gated_deltanet"], inputs, backend="triton")[0].square().sum(),
        leaf,
        create_graph=True,
    )
    with pytest.raises(RuntimeError, match="has no derivative"):
        gradient.sum().backward()


def test_what_is_like_a_call_before_is_not_taken_for_it() -> None:
    inputs = random_inputs(INSTANCES["gla"], **ONE, length=5)
    q, k, v, log_decay = (inputs[name] for name in ("q", "k", "v", "log_decay"))
    o, _ = matrix_state(q, k, v, log_decay=log_decay, scale=1.0, backend="triton")
    half, _ = matrix_state(q, k, v, log_decay=log_decay, scale=0.5, backend="triton")
    assert torch.allclose(half, o / 2)
    asked, _ = matrix_state(
        q, k.clone().requires_grad_(), v, log_decay=log_decay, scale=1.0, backend="triton"
    )
    assert asked.requires_grad
    assert not o.requires_grad
    with torch.no_grad():
        assert not matrix_state(
            q, k.clone().requires_grad_(), v, log_decay=log_decay, scale=1.0, backend="triton"
        )[0].requires_grad
    updates = [{"update": update} for update in (Delta(v), "add", None)]
    wrong: list[dict[str, Any]] = [
        {"read": "sideways"},
        {"steps": 2},
        {"bonus": torch.ones(1, 16)},
        {"state": v},
        *updates,
    ]
    for given in wrong:
        with pytest.raises(ValueError, match=r"must|steps"):
            matrix_state(q, k, v, log_decay=log_decay, scale=1.0, backend="triton", **given)

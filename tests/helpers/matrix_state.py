"""Helpers of tests of `matrix_state`: forms and inputs, results with every gradient, limits of errors."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state.published import Instance, apply, random_inputs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float64: (1e-9, 1e-9), torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}
"""Limits of the errors of outputs and final states, and of gradients."""

DECAYS = ["none", "scalar", "vector"]
READS = ["after", "before", "bonus"]
UPDATES = {
    "add": Instance("none", "add"),
    "delta": Instance("none", "delta"),
    "delta with erase key": Instance("none", "delta"),
    "delta reading undecayed": Instance("none", "erase"),
    "comba": Instance("none", "erase"),
    "low rank": Instance("none", "low_rank"),
}

Inputs = dict[str, Tensor]
Run = Callable[..., tuple[Tensor, Tensor]]


def draw(
    decay: str,
    update: str,
    read: str = "after",
    steps: int = 1,
    *,
    erase_key: bool | None = None,
    **sizes: Any,
) -> tuple[Instance, Inputs]:
    """Any form of the recurrence, `INSTANCES` or not, with random inputs for it. An erase key is near, but
    not along, the key."""
    instance = UPDATES[update]._replace(
        decay=decay, read="after" if read == "after" else "before", steps=steps
    )
    own_erase_key = update in ("delta with erase key", "comba")
    inputs = random_inputs(instance._replace(update="erase") if own_erase_key else instance, **sizes)
    if not own_erase_key:
        inputs.pop("erase_key", None)
    else:
        noise = torch.randn(inputs["k"].shape, generator=torch.Generator().manual_seed(1)).to(inputs["k"])
        inputs["erase_key"] = inputs["erase_key"] + 0.1 * noise
    if read == "before":
        del inputs["bonus"]
    return instance, inputs


def near_parallel(inputs: Inputs) -> Inputs:
    """Keys that differ by a thousandth, and beta (of a low-rank update, what stands for it) 1.99."""
    noise = torch.randn(inputs["k"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    k = F.normalize(F.normalize(noise[:, :1], dim=-1) + 1e-3 * noise, dim=-1).to(inputs["k"])
    changed = {
        "k": k,
        "erase_key": k,
        "a": -k,
        "b": 1.99 * k,
        "beta": torch.full_like(inputs.get("beta", k), 1.99),
    }
    return inputs | {name: x for name, x in changed.items() if name in inputs}


EXTREMES = ["keep all or lose all but a millionth", "forget all or decay a little", "forget all"]


def forgetful(inputs: Inputs, extreme: str) -> Inputs:
    """Decays as in `EXTREMES`, by chance where these leave a choice."""
    old = inputs["log_decay"]
    chosen = (torch.rand(old.shape, generator=torch.Generator().manual_seed(3)) < 0.5).to(old.device)
    if extreme == EXTREMES[0]:
        return inputs | {"log_decay": torch.where(chosen, torch.full_like(old, 1e-6).log(), 0.0)}
    return inputs | {"log_decay": torch.where(chosen | (extreme == EXTREMES[2]), -200.0, old)}


RESETS = [-1e4, -1e12, -1e30, -3.4028234663852886e38, -1e300, float("-inf")]
"""Log decays by which packed sequences are kept apart. The last finite one is beyond float32, the one before
is its last."""


def resetting(inputs: Inputs, reset: float) -> tuple[Inputs, Tensor]:
    """Slow decays but for a few tokens of `reset`, two of them side by side, the first and the last among
    them, and where these are. Of decays by row one of those tokens resets every other row alone. Log decays
    are float64 where float32 cannot hold the reset."""
    old = inputs["log_decay"]
    here = torch.zeros(old.shape, dtype=torch.bool)
    last = old.shape[1] - 1
    here[:, sorted({0, min(5, last), min(6, last), last})] = True
    if old.dim() == 4:
        here[:, min(11, last), ..., ::2] = True
    wide = old.double() if reset == -1e300 else old
    here = here.to(old.device)
    return inputs | {"log_decay": torch.where(here, reset, wide / 5)}, here


def assert_resets(instance: Instance, inputs: Inputs, reset: float, backend: str) -> None:
    """Parity with float64 where tokens reset the state, and gradients of exactly zero there."""
    inputs, here = resetting(inputs, reset)
    gradient = assert_parity(instance, inputs, backend).gradients["log_decay"]
    assert not gradient[here].any()
    assert here.all() or gradient[~here].any()


class Results(NamedTuple):
    """outputs: o and the final state. gradients: by input, zero where none came."""

    outputs: Inputs
    gradients: Inputs


def weights(x: Tensor, seed: int) -> Tensor:
    """Random, and the same for every dtype: bfloat16 holds them exactly."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).bfloat16().to(x)


def results(
    instance: Instance,
    inputs: Inputs,
    backend: str,
    *,
    through: Iterable[str] = ("o", "state"),
    run: Run = apply,
) -> Results:
    """Return outputs and gradients of a loss that gives every number of `through` a weight of its own."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    outputs = dict(zip(("o", "state"), run(instance, leaves, backend=backend), strict=True))
    sum((outputs[name] * weights(outputs[name], seed)).sum() for seed, name in enumerate(through)).backward()
    gradients = {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in leaves.items()}
    return Results({name: x.detach() for name, x in outputs.items()}, gradients)


def reference(instance: Instance, inputs: Inputs, *, through: Iterable[str] = ("o", "state")) -> Results:
    """Return the results of the reference in float64, whatever dtype the inputs have."""
    return results(instance, {name: x.double() for name, x in inputs.items()}, "reference", through=through)


def assert_sequences_lie_apart(
    instance: Instance, inputs: Inputs, lengths: Sequence[int], backend: str
) -> None:
    """Sequences of these lengths in a batch of one are as each alone: outputs, last state, all gradients."""

    def one_by_one(instance: Instance, inputs: Inputs, **options: Any) -> tuple[Tensor, Tensor]:
        parts = {
            name: x.split([(n if name in ("q", "log_decay") else instance.steps * n) for n in lengths], dim=1)
            for name, x in inputs.items()
        }
        alone = [
            apply(instance, {name: x[i] for name, x in parts.items()}, **options) for i in range(len(lengths))
        ]
        return torch.cat([o for o, _ in alone], dim=1), alone[-1][1]

    together = partial(apply, cu_seqlens=torch.tensor([0, *lengths]).cumsum(dim=0))
    dtype = inputs["v"].dtype
    given = results(instance, inputs, backend, run=together)
    exact = {name: x.double() for name, x in inputs.items()}
    expected = results(instance, exact, "reference", run=one_by_one)
    for limit, ours, wanted in zip(LIMITS[dtype], given, expected, strict=True):
        assert all(error(x, wanted[name], 1e-3) < limit for name, x in ours.items())


def error(given: Tensor, expected: Tensor, least: float = 0.0) -> float:
    """||given - expected|| / max(||expected||, least); infinite where anything is not finite."""
    assert given.shape == expected.shape
    given, expected = given.detach().double(), expected.detach().double()
    distance, size = float((given - expected).norm()), max(float(expected.norm()), least)
    if distance == 0:
        return 0.0
    return distance / size if size and distance < float("inf") else float("inf")


def excesses(given: Results, expected: Results, limits: tuple[float, float]) -> dict[str, float]:
    """The errors beyond their limit, by name. Gradients that vanish by cancellation are held to a hundredth
    of q's, or where q has none of the largest."""
    assert given.gradients.keys() == expected.gradients.keys()
    least = 1e-2 * float(expected.gradients["q"].norm() or max(x.norm() for x in expected.gradients.values()))
    found = {name: (error(x, expected.outputs[name]), limits[0]) for name, x in given.outputs.items()}
    found |= {
        f"gradient of {name}": (error(x, expected.gradients[name], least), limits[1])
        for name, x in given.gradients.items()
    }
    return {name: measured for name, (measured, limit) in found.items() if not measured <= limit}


def assert_parity(
    instance: Instance,
    inputs: Inputs,
    backend: str,
    *,
    run: Run = apply,
    through: Iterable[str] = ("o", "state"),
) -> Results:
    """Hold a backend, or another way to run it, to the reference as far as the inputs' precision allows, and
    return its results."""
    given = results(instance, inputs, backend, through=through, run=run)
    wide = torch.promote_types(inputs["v"].dtype, torch.float32)
    assert (given.outputs["o"].dtype, given.outputs["state"].dtype) == (inputs["v"].dtype, wide)
    assert all(given.gradients[name].dtype == x.dtype for name, x in inputs.items())
    beyond = excesses(given, reference(instance, inputs, through=through), LIMITS[inputs["v"].dtype])
    assert not beyond, beyond
    return given


def stacked(shared: str | None) -> Run:
    """`apply` to replicas along a first dimension, which `shared` alone does not have."""

    def run(instance: Instance, inputs: Inputs, backend: str) -> tuple[Tensor, Tensor]:
        def replica(*values: Tensor) -> tuple[Tensor, Tensor]:
            return apply(instance, dict(zip(inputs, values, strict=True)), backend=backend)

        return torch.vmap(replica, in_dims=tuple(None if name == shared else 0 for name in inputs))(
            *inputs.values()
        )

    return run


def unstacked(shared: str | None) -> Run:
    """`stacked`, one after the other."""

    def run(instance: Instance, inputs: Inputs, backend: str) -> tuple[Tensor, Tensor]:
        count = len(next(x for name, x in inputs.items() if name != shared))
        replicas = [{name: x if name == shared else x[n] for name, x in inputs.items()} for n in range(count)]
        o, state = zip(*(apply(instance, replica, backend=backend) for replica in replicas), strict=True)
        return torch.stack(o), torch.stack(state)

    return run


@torch.no_grad()
def decode(instance: Instance, inputs: Inputs, backend: str) -> Inputs:
    """o and the final state, from one call per token."""
    state, outputs, length = inputs["state"], [], inputs["q"].shape[1]
    for t in range(length):
        token = {
            name: x if name == "bonus" else x.tensor_split(length, dim=1)[t]
            for name, x in inputs.items()
            if name != "state"
        }
        o, state = apply(instance, token | {"state": state}, backend=backend)
        outputs.append(o)
    return {"o": torch.cat(outputs, dim=1), "state": state}


def force(monkeypatch: pytest.MonkeyPatch, schedule: str, **changes: Any) -> None:
    """Launch this way, whatever the rule says: "joined" is the split schedule with joined gradients. The
    fused one takes all of a state at once, whatever the blocks, and joined gradients all keys."""
    from linbench.kernels.matrix_state.triton import launch, plan

    rule = launch.rule

    def forced(**call: Any) -> Any:
        blocks = {}
        key_block, value_block = (
            max(16, 1 << (call[name] - 1).bit_length()) for name in ("key_dim", "value_dim")
        )
        if schedule == "fused":
            blocks = {"key_block": key_block, "value_block": value_block, "pass_values": value_block}
        elif schedule == "joined":
            blocks = {"key_block": key_block}
        named = "split" if schedule == "joined" else schedule
        return rule(**call)._replace(schedule=named, joined=schedule == "joined", **changes | blocks)

    monkeypatch.setattr(launch, "rule", forced)
    monkeypatch.setattr(plan, "planned", plan.Plan)
    monkeypatch.setattr(plan, "known", {})


def pairwise(**factors: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows of a table in which every two values of different factors meet: few, not fewest, and evenly
    mixed."""
    values = {name: list(given) for name, given in factors.items()}
    met = {
        frozenset(pair): 0
        for a, b in combinations(values, 2)
        for pair in product(product([a], values[a]), product([b], values[b]))
    }

    def how_often(row: dict[str, Any], name: str, value: Any) -> list[int]:
        return sorted(met[frozenset([(name, value), other])] for other in row.items())

    rows = []
    while (pair := next((pair for pair, times in met.items() if not times), None)) is not None:
        row = dict(pair)
        for name in values:
            if name not in row:
                row[name] = min(values[name], key=partial(how_often, row, name))
        for pair in combinations(row.items(), 2):
            met[frozenset(pair)] += 1
        rows.append({name: row[name] for name in values})
    return rows


def named(row: dict[str, Any]) -> str:
    """The id of a test that is a row of a table."""
    return "-".join(
        " ".join(map(str, value)) if isinstance(value, tuple) else str(value).removeprefix("torch.")
        for value in row.values()
    )

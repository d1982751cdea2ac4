"""Decays along both sides of a matrix: the chunkwise form is the loop, and the loop is the sum over pairs of
tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.two_sided import flops_per_token, two_sided
from tests.helpers.matrix_state import LIMITS, error, weights

B, H, K, V = 2, 3, 4, 5
BACKENDS = ["reference", "chunkwise"]
LENGTHS = [1, 2, 3, 31, 32, 33, 64, 100]
GATES = ["key_log_decay", "value_log_decay"]
Inputs = dict[str, Tensor]


def draw(
    length: int, *, dtype: torch.dtype = torch.float64, state: bool = True, key_heads: int = H
) -> Inputs:
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)

    inputs = {name: normal(B, length, key_heads, K) for name in "qk"} | {"v": normal(B, length, H, V)}
    inputs |= {
        name: F.logsigmoid(3 * normal(B, length, H, size)) for name, size in zip(GATES, (K, V), strict=True)
    }
    return inputs | ({"state": normal(B, H, K, V)} if state else {})


def extreme(inputs: Inputs, kind: str) -> Inputs:
    """Gates of one or a millionth, of almost nothing or as they were, or of almost nothing alone."""
    changed = {}
    for seed, name in enumerate(GATES):
        old = inputs[name]
        chosen = torch.rand(old.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
        if kind == "keep all or lose all but a millionth":
            changed[name] = torch.where(chosen, torch.full_like(old, 1e-6).log(), 0.0)
        else:
            changed[name] = torch.where(chosen | (kind == "forget all"), -200.0, old / 10)
    return inputs | changed


def results(inputs: Inputs, backend: str) -> dict[str, Tensor]:
    """Outputs, and the gradients of a loss that weighs every number of them."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    o, state = two_sided(**leaves, backend=backend)
    ((o * weights(o, 0)).sum() + (state * weights(state, 1)).sum()).backward()
    return {"o": o.detach(), "last": state.detach()} | {name: x.grad for name, x in leaves.items()}


def assert_parity(inputs: Inputs, backend: str = "chunkwise") -> None:
    given = results(inputs, backend)
    expected = results({name: x.double() for name, x in inputs.items()}, "reference")
    of_outputs, of_gradients = LIMITS[inputs["v"].dtype]
    least = 1e-2 * float(expected["q"].norm())
    for name, x in given.items():
        limit = of_outputs if name in ("o", "last") else of_gradients
        assert error(x, expected[name], least if name in inputs else 0.0) < limit, name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_outputs_state_and_gradients_equal_the_loop(length: int, state: bool, dtype: torch.dtype) -> None:
    assert_parity(draw(length, state=state, dtype=dtype))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("length", [1, 33, 70])
def test_shared_keys_are_keys_of_several_heads_that_are_alike(length: int, state: bool, backend: str) -> None:
    shared = draw(length, state=state, key_heads=1)
    apart = {name: x.expand(-1, -1, H, -1) if name in "qk" else x for name, x in shared.items()}
    given, expected = results(shared, backend), results(apart, "reference")
    for name, x in given.items():
        wanted = expected[name].sum(dim=2, keepdim=True) if name in ("q", "k") else expected[name]
        assert error(x, wanted) < 1e-12, name


@pytest.mark.parametrize(
    "kind", ["keep all or lose all but a millionth", "forget all or decay a little", "forget all"]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("length", [3, 100])
def test_extreme_decays(length: int, dtype: torch.dtype, kind: str) -> None:
    assert_parity(extreme(draw(length, dtype=dtype), kind))


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_are_sums_over_pairs_of_tokens(backend: str) -> None:
    inputs = draw(9, state=False)
    q, k, v, f, g = inputs.values()
    o, state = two_sided(**inputs, scale=0.7, backend=backend)
    for i in range(9):
        expected = torch.zeros(B, H, V, dtype=torch.float64)
        for j in range(i + 1):
            score = (q[:, i] * k[:, j] * f[:, j + 1 : i + 1].sum(dim=1).exp()).sum(dim=-1, keepdim=True)
            expected += score * g[:, j + 1 : i + 1].sum(dim=1).exp() * v[:, j]
        assert error(o[:, i], 0.7 * expected) < 1e-12
    rows, columns = ((x.flip(1).cumsum(1).flip(1) - x).exp() for x in (f, g))
    assert error(state, torch.einsum("bthk,bthv->bhkv", rows * k, columns * v)) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_decay_of_values_it_is_a_vector_decay(backend: str) -> None:
    inputs = draw(70)
    expected = matrix_state(
        inputs["q"],
        inputs["k"],
        inputs["v"],
        log_decay=inputs["key_log_decay"],
        state=inputs["state"],
        backend="reference",
    )
    given = two_sided(**inputs | {"value_log_decay": torch.zeros(1, dtype=torch.float64)}, backend=backend)
    for x, y in zip(given, expected, strict=True):
        assert error(x, y) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("points", [[1] * 9, [4, 5], [33, 1, 6], [64, 6]], ids=str)
def test_splitting_and_carrying_the_state_equals_the_whole(points: list[int], backend: str) -> None:
    inputs = draw(sum(points))
    whole, last = two_sided(**inputs, backend=backend)
    state, outputs = inputs.pop("state"), []
    for parts in zip(*(x.split(points, dim=1) for x in inputs.values()), strict=True):
        o, state = two_sided(**dict(zip(inputs, parts, strict=True)), state=state, backend=backend)
        outputs.append(o)
    assert error(torch.cat(outputs, dim=1), whole) < 1e-12
    assert error(state, last) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_later_tokens_change_no_bit_of_earlier_outputs(backend: str) -> None:
    inputs, others = draw(70, dtype=torch.float32), draw(70, dtype=torch.float32)
    whole, _ = two_sided(**inputs, backend=backend)
    for t in (1, 31, 32, 33, 69):
        changed = {
            name: x if name == "state" else torch.cat([x[:, :t], 2 * others[name][:, t:].flip(1)], dim=1)
            for name, x in inputs.items()
        }
        o, _ = two_sided(**changed, backend=backend)
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t], whole[:, t])


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_stack(backend: str) -> None:
    replicas = [draw(40), {name: -x if name in "qkv" else x / 2 for name, x in draw(40).items()}]
    stacked = [torch.stack([inputs[name] for inputs in replicas]) for name in replicas[0]]

    def loss(*values: Tensor) -> Tensor:
        o, state = two_sided(**dict(zip(replicas[0], values, strict=True)), backend=backend)
        return o.square().sum() + state.sum()

    gradients = torch.vmap(torch.func.grad(loss, argnums=tuple(range(len(stacked)))))(*stacked)
    for r, inputs in enumerate(replicas):
        alone = torch.func.grad(loss, argnums=tuple(range(len(stacked))))(*inputs.values())
        for given, expected in zip(gradients, alone, strict=True):
            assert error(given[r], expected) < 1e-12


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_dtypes(backend: str) -> None:
    wide = draw(20)
    for dtype in (torch.bfloat16, torch.float32):
        narrow = {name: x.to(dtype) if name in "qkv" else x.float() for name, x in wide.items()}
        o, state = two_sided(**narrow, backend=backend)
        with torch.autocast("cpu", torch.bfloat16):
            again, _ = two_sided(**narrow, backend=backend)
        assert (o.dtype, state.dtype) == (dtype, torch.float32)
        assert torch.equal(again, o)
        expected, _ = two_sided(**{name: x.double() for name, x in narrow.items()}, backend="reference")
        assert error(o, expected) < (8e-3 if dtype == torch.bfloat16 else 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"q": x["q"][:, :-1]}, r"q, k \[B, T, Hk, K\] and v"),
        (lambda x: {name: x[name][:, :, :2] for name in "qk"}, "Hk dividing H"),
        (lambda x: {"k": x["k"][..., :-1]}, "q, k"),
        (lambda x: {"v": x["v"][:, :, :1]}, "q, k"),
        (lambda x: {name: x[name][:, :0] for name in "qkv"}, "T >= 1"),
        (
            lambda x: {"state": x["state"].mT},
            r"state must be \[B, H, K, V\] = \(2, 3, 4, 5\), not \(2, 3, 5, 4\)",
        ),
        (
            lambda x: {"key_log_decay": x["value_log_decay"]},
            r"key_log_decay must broadcast to \(2, 6, 3, 4\), not \(2, 6, 3, 5\)",
        ),
        (
            lambda x: {"value_log_decay": x["key_log_decay"]},
            r"value_log_decay must broadcast to \(2, 6, 3, 5\)",
        ),
        (lambda x: {"value_log_decay": x["value_log_decay"][None]}, "value_log_decay must broadcast"),
        (lambda x: {"backend": "triton"}, "backend must be one of auto, reference, chunkwise, not 'triton'"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[Inputs], dict[str, Any]], message: str) -> None:
    inputs = draw(6)
    with pytest.raises(ValueError, match=message):
        two_sided(**inputs | change(inputs))


def test_the_scale_is_by_the_width_of_keys() -> None:
    inputs = draw(6)
    assert error(two_sided(**inputs)[0], two_sided(**inputs, scale=0.5)[0]) < 1e-12


def test_flops() -> None:
    assert flops_per_token(heads=3, key_dim=4, value_dim=5) == 3 * 4 * 5 * 6

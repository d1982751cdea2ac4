import importlib
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import Add, Delta, flops_per_token, matrix_state

B, H, HK, K, V = 2, 4, 2, 8, 5
BACKENDS = ["reference", "chunkwise"]
FAST = ["chunkwise"]
LENGTHS = [1, 3, 63, 64, 65, 100]


class Inputs(NamedTuple):
    """All that a recurrence takes; None where it goes without."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    beta: Tensor | None
    state: Tensor | None

    def leaves(self) -> "Inputs":
        return Inputs(*(None if x is None else x.detach().clone().requires_grad_() for x in self))

    def to(self, dtype: torch.dtype) -> "Inputs":
        return Inputs(*(None if x is None else x.to(dtype) for x in self))

    def run(self, backend: str, *, scale: float | None = None) -> tuple[Tensor, Tensor]:
        update = Add() if self.beta is None else Delta(self.beta)
        return matrix_state(self.q, self.k, self.v, log_decay=self.log_decay, update=update, scale=scale, state=self.state, backend=backend)

    def tokens(self, where: slice) -> "Inputs":
        """The same tokens without the others, from nothing."""
        return Inputs(*(None if x is None else x[:, where] for x in self[:5]), None)


Make = Callable[..., Inputs]
Error = Callable[[Tensor, Tensor], float]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    def build(length: int, *, decay: bool, delta: bool, state: bool = True, key_heads: int = HK, dtype: torch.dtype = torch.float64) -> Inputs:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        return Inputs(
            normal(B, length, key_heads, K),
            F.normalize(normal(B, length, key_heads, K), dim=-1),
            normal(B, length, H, V),
            -normal(B, length, H).exp() / 4 if decay else None,
            2 * normal(B, length, H).sigmoid() if delta else None,
            normal(B, H, K, V) if state else None,
        ).to(dtype)

    return build


def gradients(inputs: Inputs, backend: str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Output, final state, and the gradients of a loss that weighs every number of both."""
    leaves = inputs.leaves()
    o, state = leaves.run(backend)
    weigh = torch.Generator().manual_seed(3)
    loss = sum((x * torch.randn(x.shape, dtype=torch.float64, generator=weigh).to(x.dtype)).sum() for x in (o, state))
    loss.backward()
    return o.detach(), state.detach(), {name: x.grad for name, x in leaves._asdict().items() if x is not None}


def assert_parity(inputs: Inputs, backend: str, relative_error: Error, tolerance: float = 1e-9) -> None:
    expected_o, expected_state, expected = gradients(inputs, "reference")
    o, state, grads = gradients(inputs, backend)
    assert relative_error(o, expected_o) < tolerance
    assert relative_error(state, expected_state) < tolerance
    assert grads.keys() == expected.keys()
    for name, grad in grads.items():
        if expected[name].any():
            assert relative_error(grad, expected[name]) < tolerance, name
        else:
            assert not grad.any(), name


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
@pytest.mark.parametrize("decay", [False, True], ids=["no decay", "decay"])
@pytest.mark.parametrize("state", [False, True], ids=["from zero", "from state"])
def test_outputs_state_and_gradients_equal_the_reference(
    make: Make, relative_error: Error, backend: str, length: int, delta: bool, decay: bool, state: bool
) -> None:
    assert_parity(make(length, decay=decay, delta=delta, state=state), backend, relative_error)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("key_heads", [1, 4])
def test_any_number_of_key_heads(make: Make, relative_error: Error, backend: str, key_heads: int) -> None:
    assert_parity(make(65, decay=True, delta=True, key_heads=key_heads), backend, relative_error)


@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
@pytest.mark.parametrize("length", range(1, 11))
def test_every_length_around_small_chunks(make: Make, relative_error: Error, monkeypatch: pytest.MonkeyPatch, length: int, delta: bool) -> None:
    monkeypatch.setattr(importlib.import_module("linbench.kernels.matrix_state.chunkwise"), "CHUNK", 4)
    assert_parity(make(length, decay=True, delta=delta), "chunkwise", relative_error)


def near_parallel(make: Make, length: int, generator: torch.Generator, *, decay: bool) -> Inputs:
    inputs = make(length, decay=decay, delta=True)
    noise = torch.randn(B, length, HK, K, dtype=torch.float64, generator=generator)
    base = torch.randn(B, 1, HK, K, dtype=torch.float64, generator=generator)
    return inputs._replace(k=F.normalize(F.normalize(base, dim=-1) + 1e-3 * noise, dim=-1), beta=torch.full((B, length, H), 1.99, dtype=torch.float64))


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("length", [65, 100])
@pytest.mark.parametrize("decay", [False, True], ids=["no decay", "decay"])
def test_near_parallel_keys_with_beta_near_two(make: Make, generator: torch.Generator, relative_error: Error, backend: str, length: int, decay: bool) -> None:
    inputs = near_parallel(make, length, generator, decay=decay)
    assert_parity(inputs, backend, relative_error)
    expected_o, expected_state = inputs.run("reference")
    o, state = inputs.to(torch.float32).run(backend)
    assert relative_error(o, expected_o) < 1e-3
    assert relative_error(state, expected_state) < 1e-3


def extreme_decay(make: Make, length: int, generator: torch.Generator, *, delta: bool) -> Inputs:
    inputs = make(length, decay=True, delta=delta)
    forget = torch.rand(B, length, H, generator=generator) < 0.5
    return inputs._replace(log_decay=torch.where(forget, torch.tensor(1e-6, dtype=torch.float64).log(), 0.0))


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("length", [3, 65, 100])
@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
def test_keeping_all_and_forgetting_all_in_turn(make: Make, generator: torch.Generator, relative_error: Error, backend: str, length: int, delta: bool) -> None:
    inputs = extreme_decay(make, length, generator, delta=delta)
    assert_parity(inputs, backend, relative_error)
    o, state, grads = gradients(inputs.to(torch.float32), backend)
    assert all(x.isfinite().all() for x in (o, state, *grads.values()))
    expected_o, expected_state = inputs.run("reference")
    assert relative_error(o, expected_o) < 1e-3
    assert relative_error(state, expected_state) < 1e-3


@pytest.mark.parametrize("backend", FAST)
def test_forgetting_everything_at_every_token_stays_finite_in_float32(make: Make, relative_error: Error, backend: str) -> None:
    inputs = make(100, decay=True, delta=True)
    inputs = inputs._replace(log_decay=torch.full_like(inputs.log_decay, -200.0))
    o, state, grads = gradients(inputs.to(torch.float32), backend)
    assert all(x.isfinite().all() for x in (o, state, *grads.values()))
    assert relative_error(o, inputs.run("reference")[0]) < 1e-4


def assert_split_equals_whole(inputs: Inputs, point: int, backend: str, relative_error: Error) -> None:
    whole, last = inputs.run(backend)
    first, state = inputs.tokens(slice(None, point))._replace(state=inputs.state).run(backend)
    second, state = inputs.tokens(slice(point, None))._replace(state=state).run(backend)
    assert relative_error(torch.cat([first, second], dim=1), whole) < 1e-9
    assert relative_error(state, last) < 1e-9


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
@pytest.mark.parametrize("decay", [False, True], ids=["no decay", "decay"])
@pytest.mark.parametrize(("length", "points"), [(9, range(1, 9)), (70, (1, 5, 31, 63, 64, 65, 69))])
def test_splitting_and_carrying_the_state_equals_the_whole(
    make: Make, relative_error: Error, backend: str, delta: bool, decay: bool, length: int, points: tuple[int, ...]
) -> None:
    inputs = make(length, decay=decay, delta=delta)
    for point in points:
        assert_split_equals_whole(inputs, point, backend, relative_error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("given", "out", "held"),
    [(torch.bfloat16, torch.bfloat16, torch.float32), (torch.float32, torch.float32, torch.float32), (torch.float64, torch.float64, torch.float64)],
)
def test_output_keeps_the_dtype_and_the_state_is_at_least_float32(make: Make, backend: str, given: torch.dtype, out: torch.dtype, held: torch.dtype) -> None:
    inputs = make(5, decay=True, delta=True, dtype=given)
    o, state = inputs.run(backend)
    assert (o.dtype, state.dtype) == (out, held)
    o, state = inputs._replace(state=None).run(backend)
    assert (o.dtype, state.dtype) == (out, held)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_loses_only_its_own_rounding(make: Make, relative_error: Error, backend: str) -> None:
    inputs = make(65, decay=True, delta=True, dtype=torch.bfloat16)
    o, state = inputs.run(backend)
    expected_o, expected_state = inputs.to(torch.float64).run("reference")
    assert relative_error(state, expected_state) < 1e-4
    assert relative_error(o, expected_o) < 2**-8


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
@pytest.mark.parametrize("state", [False, True], ids=["from zero", "from state"])
def test_no_unwritten_memory_is_read(make: Make, relative_error: Error, request: pytest.FixtureRequest, backend: str, delta: bool, state: bool) -> None:
    inputs = make(70, decay=True, delta=delta, state=state)
    clean = gradients(inputs, backend)
    request.getfixturevalue("poisoned_memory")
    poisoned = gradients(inputs, backend)
    assert relative_error(poisoned[0], clean[0]) < 1e-12
    assert relative_error(poisoned[1], clean[1]) < 1e-12
    for name, grad in poisoned[2].items():
        assert relative_error(grad, clean[2][name]) < 1e-12, name


@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
def test_numerical_gradients_of_the_chunkwise_form(make: Make, monkeypatch: pytest.MonkeyPatch, delta: bool) -> None:
    monkeypatch.setattr(importlib.import_module("linbench.kernels.matrix_state.chunkwise"), "CHUNK", 3)
    whole = make(4, decay=True, delta=delta)
    inputs = Inputs(
        *(None if x is None else x[:1, :, :1] for x in (whole.q[..., :3], whole.k[..., :3], whole.v[..., :2], whole.log_decay, whole.beta)),
        whole.state[:1, :1, :3, :2],
    ).leaves()
    given = {name: x for name, x in inputs._asdict().items() if x is not None}

    def function(*values: Tensor) -> tuple[Tensor, Tensor]:
        return inputs._replace(**dict(zip(given, values, strict=True))).run("chunkwise")

    assert torch.autograd.gradcheck(function, tuple(given.values()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x._replace(q=x.q[..., :-1]), "Hk dividing H"),
        (lambda x: x._replace(k=x.k[:, :, :1]), "Hk dividing H"),
        (lambda x: x._replace(v=x.v[:, :-1]), "Hk dividing H"),
        (lambda x: x._replace(v=x.v[:, :, :3]), "Hk dividing H"),
        (lambda x: x._replace(log_decay=x.log_decay[:, :, None, :]), "log_decay"),
        (lambda x: x._replace(beta=torch.ones(3, B, 5, H, dtype=torch.float64)), "beta"),
        (lambda x: x._replace(state=x.state.mT), "state"),
        (lambda x: x._replace(state=x.state[:1]), "state"),
        (lambda x: Inputs(x.q[:, :0], x.k[:, :0], x.v[:, :0], None, None, None), "at least one token"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(make: Make, backend: str, change: Callable[[Inputs], Inputs], message: str) -> None:
    inputs = change(make(5, decay=True, delta=True))
    with pytest.raises(ValueError, match=message):
        inputs.run(backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["log_decay", "beta"])
def test_a_gate_that_cannot_broadcast_is_named(make: Make, backend: str, name: str) -> None:
    inputs = make(5, decay=True, delta=True)
    with pytest.raises(ValueError, match=name):
        inputs._replace(**{name: torch.zeros(B, 4, H, dtype=torch.float64)}).run(backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(H,), (1, 1, 1), (B, 1, H), (1, 65, 1), ()])
def test_gates_broadcast(make: Make, relative_error: Error, backend: str, shape: tuple[int, ...]) -> None:
    inputs = make(65, decay=True, delta=True)
    small = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    full = inputs._replace(log_decay=-small.expand(B, 65, H).contiguous(), beta=small.expand(B, 65, H).contiguous())
    o, state = inputs._replace(log_decay=-small, beta=small).run(backend)
    assert relative_error(o, full.run(backend)[0]) < 1e-12
    assert relative_error(state, full.run(backend)[1]) < 1e-12


def column(*values: float) -> Tensor:
    """One sequence, one head."""
    return torch.tensor(values, dtype=torch.float64)[None, :, None]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("scale", "factor"), [(None, 2**-0.5), (1.0, 1.0), (0.25, 0.25)])
@pytest.mark.parametrize(
    ("beta", "o2", "s2"),
    # S_1 = (3, 0), half of it stays: (1.5, 0), and k_2 v_2 = (1.2, 1.6) comes in
    [(None, 5.9, (2.7, 1.6)), ((0.5, 1.0), 4.16, (1.68, 1.24))],
    # S_1 = (1.5, 0), half of it stays: (0.75, 0), of which k_2 recalls 0.45, so that 1.55 k_2 comes in
    ids=["add", "delta"],
)
def test_two_tokens_worked_by_hand(
    backend: str, scale: float | None, factor: float, beta: tuple[float, float] | None, o2: float, s2: tuple[float, float]
) -> None:
    q = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)[None, :, None]
    k = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)[None, :, None]
    log_decay = torch.tensor([0.9, 0.5], dtype=torch.float64).log()[None, :, None]
    inputs = Inputs(q, k, column(3.0, 2.0)[..., None], log_decay, None if beta is None else column(*beta), None)
    o, state = inputs.run(backend, scale=scale)
    o1 = 3.0 if beta is None else 1.5
    assert o.flatten().tolist() == pytest.approx([factor * o1, factor * o2], rel=1e-12)
    assert state.flatten().tolist() == pytest.approx(s2, rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_head_serves_neighbouring_value_heads(backend: str) -> None:
    q = torch.ones(1, 1, 2, 1, dtype=torch.float64)
    k = torch.tensor([2.0, 3.0], dtype=torch.float64)[None, None, :, None]
    o, _ = matrix_state(q, k, torch.ones(1, 1, 4, 1, dtype=torch.float64), backend=backend)
    assert o.flatten().tolist() == [2.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("delta", [False, True], ids=["add", "delta"])
def test_no_decay_is_a_decay_of_one(make: Make, relative_error: Error, backend: str, delta: bool) -> None:
    inputs = make(70, decay=False, delta=delta)
    without = inputs.run(backend)
    with_zeros = inputs._replace(log_decay=torch.zeros(B, 70, H, dtype=torch.float64)).run(backend)
    for given, expected in zip(with_zeros, without, strict=True):
        assert relative_error(given, expected) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_orthonormal_keys_recall_and_overwrite_exactly(generator: torch.Generator, backend: str) -> None:
    keys = torch.linalg.qr(torch.randn(K, K, dtype=torch.float64, generator=generator)).Q
    values = torch.randn(K, V, dtype=torch.float64, generator=generator)
    replaced = torch.randn(V, dtype=torch.float64, generator=generator)
    read = torch.zeros(K, V, dtype=torch.float64)
    k = torch.cat([keys, keys, keys[3:4], keys])
    v = torch.cat([values, read, replaced[None], read])
    beta = torch.cat([torch.ones(K), torch.zeros(K), torch.ones(1), torch.zeros(K)]).double()
    o, _ = matrix_state(k[None, :, None], k[None, :, None], v[None, :, None], update=Delta(beta[None, :, None]), scale=1.0, backend=backend)
    o = o[0, :, 0]
    torch.testing.assert_close(o[K : 2 * K], values, rtol=0, atol=1e-12)
    expected = values.clone()
    expected[3] = replaced
    torch.testing.assert_close(o[2 * K + 1 :], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_beta_of_two_reflects(generator: torch.Generator, backend: str) -> None:
    key = F.normalize(torch.randn(K, dtype=torch.float64, generator=generator), dim=0)
    value = torch.randn(V, dtype=torch.float64, generator=generator)
    length = 70
    k = key.expand(1, length, 1, K)
    beta = torch.full((1, length, 1), 2.0, dtype=torch.float64)
    start = torch.outer(key, value)[None, None]
    o, state = matrix_state(k, k, torch.zeros(1, length, 1, V, dtype=torch.float64), update=Delta(beta), scale=1.0, state=start, backend=backend)
    signs = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(length // 2)
    torch.testing.assert_close(o[0, :, 0], signs[:, None] * value, rtol=0, atol=1e-11)
    torch.testing.assert_close(state, start, rtol=0, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sum_with_constant_decay_is_attention_without_softmax(make: Make, relative_error: Error, backend: str) -> None:
    length, decay = 70, 0.9
    inputs = make(length, decay=False, delta=False, state=False, key_heads=H)
    o, _ = matrix_state(inputs.q, inputs.k, inputs.v, log_decay=torch.tensor(decay, dtype=torch.float64).log(), backend=backend)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    mask = (decay ** distance.clamp(min=0).double()).tril()
    scores = torch.einsum("bthk,bshk->bhts", inputs.q, inputs.k) * K**-0.5
    assert relative_error(o, torch.einsum("bhts,bshv->bthv", scores * mask, inputs.v)) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_state_given_is_not_written(make: Make, backend: str) -> None:
    inputs = make(5, decay=True, delta=True)
    before = [x.clone() for x in inputs]
    inputs.run(backend)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


@pytest.mark.parametrize(("decay", "delta", "per_element"), [(False, False, 4), (True, False, 5), (False, True, 6), (True, True, 7)])
def test_flops_per_token(decay: bool, delta: bool, per_element: int) -> None:
    assert flops_per_token(heads=3, key_dim=8, value_dim=5, decay=decay, delta=delta) == 3 * 8 * 5 * per_element


def test_an_unknown_backend_is_refused() -> None:
    q = torch.zeros(1, 2, 1, 4)
    with pytest.raises(ValueError, match="one of auto, reference, chunkwise"):
        matrix_state(q, q, q, backend="fast")  # type: ignore[arg-type]

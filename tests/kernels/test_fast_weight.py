"""Fast weights by mini-batches, held to the loop over tokens, to finite differences and to what they are in
special cases."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.family import KernelCase, normal
from linbench.kernels.fast_weight import Network, Step, fast_weight, initial_state, read
from linbench.kernels.fast_weight.cases import FAMILY
from linbench.kernels.fast_weight.newton_schulz import orthogonalise
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.kernels.operators import prefer_backend
from tests.helpers.gradients import assert_near, results

CASES = FAMILY.cases["fast_weight"]
each_case = pytest.mark.parametrize("name", CASES)
GATES = ("log_momentum", "log_keep", "step_sizes")


def of_case(function: Callable[..., Any], case: KernelCase) -> list[Tensor]:
    """Return outputs and gradients, with the inputs in their order."""
    return results(lambda *given: function(dict(zip(case.inputs, given, strict=True))), case.inputs.values())


def whole(name: str) -> tuple[Callable[..., tuple[Tensor, Tensor]], dict[str, Tensor]]:
    """Return a case as a function of the range of tokens, and of state and number of tokens before."""
    case = CASES[name]()
    inputs, (network, step) = case.inputs, (case.kernel.keywords["network"], case.kernel.keywords["step"])

    def call(
        start: int, end: int, state: Tensor | None = None, seen: Any = None, rows: Any = slice(None)
    ) -> Any:
        given = {n: inputs[n][rows, start:end] for n in ("q", "k", "v", "rates", *GATES) if n in inputs}
        if state is not None and not isinstance(seen, Tensor):
            seen = torch.full((len(given["q"]),), seen)
        return fast_weight(
            *(given.pop(n) for n in ("q", "k", "v", "rates")),
            [x for n, x in inputs.items() if n.startswith("map")],
            network=network,
            step=step,
            norm=(inputs["weight"], inputs["bias"]) if "weight" in inputs else None,
            scales=inputs.get("scales"),
            state=state,
            seen=seen,
            **given,
        )

    return call, inputs


@each_case
def test_outputs_states_and_gradients_are_those_of_the_loop(name: str) -> None:
    case = CASES[name]()
    assert_near(of_case(case.kernel, case), of_case(case.reference, case), 1e-9)


@each_case
@torch.no_grad()
def test_a_sequence_may_be_stopped_anywhere(name: str) -> None:
    call, inputs = whole(name)
    length = inputs["q"].shape[1]
    expected = call(0, length)
    for cut in range(1, length):
        first, state = call(0, cut)
        second, state = call(cut, length, state, cut)
        assert_near([torch.cat([first, second], dim=1), state], expected, 1e-12)
    network, step = (CASES[name]().kernel.keywords[n] for n in ("network", "step"))
    start = [x for n, x in inputs.items() if n.startswith("map")]
    parts, state = [], initial_state(start, network, step, 2)
    for t in range(length):
        o, state = call(t, t + 1, state, t)
        parts.append(o)
    assert_near([torch.cat(parts, dim=1), state], expected, 1e-12)


@pytest.mark.parametrize("tokens", [1, 5])
@torch.no_grad()
def test_rows_may_stand_at_places_of_their_own(tokens: int) -> None:
    """A batch of states that saw different numbers of tokens, in both forms."""
    for name in ("titans", "lact with muon", "omega", "atlas"):
        call, inputs = whole(name)
        seen, rows, states = torch.tensor([3, 1]), [], []
        for b, before in enumerate(seen.tolist()):
            row = slice(b, b + 1)
            states.append(call(0, before, rows=row)[1])
            rows.append(call(before, before + tokens, states[-1], before, rows=row))
        inputs |= {
            n: torch.stack([x[b, s : s + tokens] for b, s in enumerate(seen)])
            for n, x in inputs.items()
            if n in ("q", "k", "v", "rates", *GATES)
        }
        for backend in ("chunkwise", "reference"):
            with prefer_backend(backend):
                found = call(0, tokens, torch.cat(states), seen)
            assert_near(found, [torch.cat(parts) for parts in zip(*rows, strict=True)], 1e-12)


@each_case
def test_gradients_through_the_inner_loop_are_finite_differences(name: str) -> None:
    case = CASES[name]()
    inputs = {
        n: x[:1, :6].clone() if n in ("q", "k", "v", "rates", *GATES) else x for n, x in case.inputs.items()
    }

    def outputs(*given: Tensor) -> tuple[Tensor, ...]:
        return case.kernel(dict(zip(inputs, given, strict=True)))

    leaves = [x.clone().requires_grad_() for x in inputs.values()]
    assert torch.autograd.gradcheck(outputs, leaves, fast_mode=True, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["chunkwise", "reference"])
@pytest.mark.parametrize("name", ["titans", "lact with muon"])
@torch.no_grad()
def test_whole_mini_batches_begin_again_after_an_unfinished_one(name: str, backend: Any) -> None:
    """States are those between mini-batches, without what an unfinished one has gathered."""
    case = CASES[name]()
    network, step = (case.kernel.keywords[n] for n in ("network", "step"))
    step, maps = step._replace(whole=True), [x for n, x in case.inputs.items() if n.startswith("map")]
    length = case.inputs["q"].shape[1]
    expected, _ = case.kernel(case.inputs)

    def call(start: int, end: int, state: Tensor | None) -> tuple[Tensor, Tensor]:
        given = {
            n: case.inputs[n][:, start:end] for n in ("q", "k", "v", "rates", *GATES) if n in case.inputs
        }
        return fast_weight(
            **given,
            initial=maps,
            network=network,
            step=step,
            state=state,
            backend=backend,  # type: ignore[arg-type]
        )

    begun, middle = call(0, 6, None)
    rest, last = call(4, length, middle)
    assert_near([begun, rest], [expected[:, :6], expected[:, 4:]], 1e-12)
    assert_near([middle, last], [call(0, 4, None)[1], call(0, length // 4 * 4, None)[1]], 1e-12)
    assert middle.shape[-1] == step.floats(network, [w.shape[-2:] for w in maps])  # type: ignore[arg-type]
    assert_near([call(0, 3, None)[1]], [initial_state(maps, network, step, 2)], 1e-12)


@pytest.mark.parametrize("name", ["ttt_mlp", "lact"])
def test_reading_is_that_of_a_mini_batch_with_the_weights_before_it(name: str) -> None:
    _, inputs = whole(name)
    network, step = (CASES[name]().kernel.keywords[n] for n in ("network", "step"))
    maps = [x for n, x in inputs.items() if n.startswith("map")]
    norm = (inputs["weight"], inputs["bias"]) if "weight" in inputs else None
    step, still = step._replace(keeps_norms=False, momentum=False), Step(4, "before")
    q, k, v = (inputs[n][:, :7] for n in ("q", "k", "v"))
    rates = 0.1 * inputs["rates"][:, :7]
    _, state = fast_weight(q, k, v, rates, maps, network=network, step=step, norm=norm)

    def learned(q: Tensor, state: Tensor) -> Tensor:
        seen = torch.zeros(2, dtype=torch.int64)
        return fast_weight(
            q, k[:, :3], v[:, :3], rates[:, :3], maps,
            network=network, step=still, norm=norm, state=state, seen=seen,
        )[0]  # fmt: skip

    def recalled(q: Tensor, state: Tensor) -> Tensor:
        return read(q, maps, network=network, step=step, norm=norm, state=state)

    for given in ((q[:, :3], state), (q[:, :3], initial_state(maps, network, step, 2))):
        assert_near(results(recalled, given), results(learned, given), 1e-12)
    assert_near([read(q, maps, network=network, step=step, norm=norm)], [recalled(q, given[1])], 1e-12)
    with pytest.raises(ValueError, match="q must be"):
        read(q[..., :-1], maps, network=network, step=step, norm=norm)


def keys(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k = (
        normal(2, length, 2, 4),
        torch.nn.functional.normalize(normal(length, 2, 2, 4).transpose(0, 1), dim=-1),
    )
    return q, k, normal(2, length, 2, 3), normal(2, length, 2).sigmoid()


def test_with_one_token_a_mini_batch_it_is_the_delta_rule() -> None:
    q, k, v, beta = keys(9)
    zero = torch.zeros(2, 4, 3, dtype=torch.float64)

    def learned(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        o, state = fast_weight(q, k, v, beta, [zero], network=Network(), step=Step(1))
        return o, state.unflatten(-1, (4, 3))

    def corrected(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        return matrix_state(q, k, v, update=Delta(beta), scale=1.0)

    assert_near(results(learned, (q, k, v, beta)), results(corrected, (q, k, v, beta)), 1e-12)


def test_gated_momentum_of_the_delta_rule_by_hand() -> None:
    """Linear Titans, one token a mini-batch, 2501.00663: S = eta S - theta grad, M = alpha M + S."""
    q, k, v, theta = keys(7)
    eta, alpha = normal(2, 7, 2, 1, 1)[..., 0, 0].sigmoid(), (normal(7, 2, 2).transpose(0, 1) + 2).sigmoid()
    start = normal(2, 4, 3)
    o, _ = fast_weight(
        q, k, v, theta, [start], network=Network(), step=Step(1, momentum=True, decay=True),
        log_momentum=eta.log(), log_keep=alpha.log(),
    )  # fmt: skip
    M, S = start.expand(2, -1, -1, -1), torch.zeros(2, 2, 4, 3, dtype=torch.float64)
    for t in range(7):
        wrong = torch.einsum("bhk,bhkv->bhv", k[:, t], M) - v[:, t]
        gradient = torch.einsum("bhk,bhv->bhkv", k[:, t], wrong)
        S = eta[:, t, :, None, None] * S - theta[:, t, :, None, None] * gradient
        M = alpha[:, t, :, None, None] * M + S
        assert_near([o[:, t]], [torch.einsum("bhk,bhkv->bhv", q[:, t], M)], 1e-12)


def test_no_momentum_and_no_decay_are_plain_steps() -> None:
    q, k, v, rates = keys(10)
    maps = [normal(2, 4, 5), normal(2, 5, 3)]
    plain, _ = fast_weight(q, k, v, rates, maps, network=Network("mlp"), step=Step(4))
    nothing, everything = torch.full_like(rates, -80.0), torch.zeros_like(rates)
    step = Step(4, momentum=True, decay=True)
    gated, _ = fast_weight(
        q, k, v, rates, maps, network=Network("mlp"), step=step, log_momentum=nothing, log_keep=everything
    )
    assert_near([gated], [plain], 1e-12)


def test_with_a_linear_network_large_chunks_are_linear_attention_over_chunks() -> None:
    q, k, v, rates = keys(11)
    start = normal(2, 4, 3)
    step = Step(4, "before")
    o, _ = fast_weight(q, k, v, rates, [start], network=Network(loss="product"), step=step)
    written = torch.einsum("bth,bthk,bthv->bthkv", rates, k, v).cumsum(dim=1)
    for t in range(11):
        done = t // 4 * 4
        memory = start if done == 0 else start + written[:, done - 1]
        assert_near([o[:, t]], [torch.einsum("bhk,bhkv->bhv", q[:, t], memory.expand(2, -1, -1, -1))], 1e-12)


@pytest.mark.parametrize("window", [1, 3, 20])
def test_the_omega_rule_by_hand(window: int) -> None:
    """A gradient over the last tokens at the last weights, 2505.23735, with one token a mini-batch."""
    q, k, v, gamma = keys(7)
    eta, alpha = (normal(2, 7, 2).sigmoid() for _ in range(2))
    start, step = normal(2, 4, 3), Step(1, decay=True, window=window)
    o, _ = fast_weight(
        q, k, v, gamma, [start], network=Network(), step=step, log_keep=alpha.log(), step_sizes=eta
    )
    M = start.expand(2, -1, -1, -1)
    for t in range(7):
        last = slice(max(0, t - window + 1), t + 1)
        G = torch.einsum("bth,bthk,bthj->bhkj", gamma[:, last], k[:, last], k[:, last])
        B = torch.einsum("bth,bthk,bthv->bhkv", gamma[:, last], k[:, last], v[:, last])
        M = alpha[:, t, :, None, None] * M - eta[:, t, :, None, None] * (G @ M - B)
        assert_near([o[:, t]], [torch.einsum("bhk,bhkv->bhv", q[:, t], M)], 1e-12)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (7, 7)])
def test_newton_schulz_makes_singular_values_one(shape: tuple[int, int]) -> None:
    x = normal(3, *shape)
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    assert (s[:, -1] / s.square().sum(-1).sqrt()).min() > 0.01
    y = orthogonalise(x, 5)
    assert (torch.linalg.svdvals(y) - 1).abs().max() < 0.1
    assert (y - u @ vh).abs().max() < 0.1
    assert not orthogonalise(torch.zeros(2, *shape), 5).any()
    assert torch.autograd.gradcheck(lambda x: orthogonalise(x, 6), x.requires_grad_(), fast_mode=True)


@each_case
def test_replicas_are_stacked(name: str) -> None:
    case = CASES[name]()
    stacked = {n: torch.stack([x, 0.9 * x]) for n, x in case.inputs.items()}
    o, state = torch.vmap(case.kernel)(stacked)
    for i, factor in enumerate((1.0, 0.9)):
        assert_near((o[i], state[i]), case.kernel({n: factor * x for n, x in case.inputs.items()}), 1e-12)


WRONG: dict[str, dict[str, Any]] = {
    "queries of another width": {"q": normal(2, 3, 2, 5)},
    "rates of another number of maps": {"rates": normal(2, 3, 2, 2)},
    "weights of another shape": {"initial": [normal(2, 5, 3)]},
    "a residual of another width": {"network": Network(residual=True)},
    "a gate that the step has not": {"log_keep": normal(2, 3, 2)},
    "a gate that is not there": {"step": Step(2, momentum=True)},
    "a gate of another shape": {"step": Step(2, decay=True), "log_keep": normal(2, 2, 2)},
    "a window of no tokens": {"step": Step(2, window=0)},
    "a window of whole mini-batches": {"step": Step(2, window=2, whole=True)},
    "whole mini-batches with a place": {
        "step": Step(2, whole=True),
        "state": normal(2, 2, 12),
        "seen": torch.zeros(2, dtype=torch.int64),
    },
    "a window read with weights before": {"step": Step(2, "before", window=2)},
    "step sizes of mini-batches": {"step": Step(2, "before"), "step_sizes": normal(2, 3, 2)},
    "step sizes of another shape": {"step_sizes": normal(2, 2, 2)},
    "rates of maps with a window": {
        "network": Network("mlp"),
        "initial": [normal(2, 4, 6), normal(2, 6, 3)],
        "rates": normal(2, 3, 2, 2),
        "step": Step(2, window=2),
    },
    "norms within a mini-batch": {"step": Step(2, keeps_norms=True)},
    "scales of another mini-batch": {"scales": normal(3)},
    "a norm of another width": {"norm": (normal(2, 4), normal(2, 4))},
    "a state without a place": {"state": normal(2, 2, 24)},
    "an empty mini-batch": {"step": Step(0)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused(wrong: str) -> None:
    q, k, v, rates = keys(3)
    given = {"q": q, "k": k, "v": v, "rates": rates, "initial": [normal(2, 4, 3)]}
    right: dict[str, Any] = {**given, "network": Network(), "step": Step(2)}
    fast_weight(**right)
    with pytest.raises(ValueError, match=r"must|not|together|values|q, k"):
        fast_weight(**(right | WRONG[wrong]))

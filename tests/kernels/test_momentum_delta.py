"""The delta rule with momentum: the chunkwise form is the loop, and without momentum it is a gated delta
rule."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.kernels.momentum_delta import flops_per_token, momentum_delta
from tests.helpers.gradients import assert_near, assert_replicas_stack, error, results

B, H, K, V = 2, 4, 6, 5
NAMES = ("q", "k", "v", "log_decay", "log_momentum", "step", "share", "S", "N")
GATES = NAMES[3:7]
BACKENDS = ["reference", "chunkwise"]
Inputs = dict[str, Tensor]


def draw(length: int, *, key_heads: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(100 * seed + length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(B, *shape, dtype=torch.float64, generator=generator)

    q, k = (normal(length, key_heads, K) for _ in "qk")
    a, m, e, b = (normal(length, H) for _ in GATES)
    gates = (F.logsigmoid(2 * a), F.logsigmoid(2 * m), 2 * e.sigmoid(), b.sigmoid() / 2)
    drawn = (q, F.normalize(k, dim=-1), normal(length, H, V), *gates, normal(H, K, V), normal(H, K, V))
    return {name: x.to(dtype) for name, x in zip(NAMES, drawn, strict=True)}


def call(*given: Tensor, backend: Any = "chunkwise", **options: Any) -> list[Tensor]:
    *others, S, N = given
    inputs: Any = dict(zip(NAMES, others, strict=False))
    o, state = momentum_delta(**inputs, state=(S, N), backend=backend, **options)
    return [o, *state]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-10), (torch.float32, 3e-5)], ids=str)
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 63, 65, 100])
def test_outputs_states_and_gradients_equal_the_loop(length: int, dtype: torch.dtype, limit: float) -> None:
    given = draw(length, dtype=dtype).values()
    expected = results(call, (x.double() for x in given), backend="reference")
    assert_near(results(call, given), expected, limit)


def extreme(inputs: Inputs, kind: str) -> Inputs:
    """Return gates of which each keeps all or nothing, the first much more than the second, or less."""
    keep = torch.rand(2, B, inputs["q"].shape[1], H, generator=torch.Generator().manual_seed(0)) < 0.5
    logs = {
        "all or nothing": torch.where(keep, 0.0, -math.inf),
        "the momentum forgets sooner": torch.stack([0 * keep[0], 0 * keep[1] - 20.0]),
        "the memory forgets sooner": torch.stack([0 * keep[0] - 20.0, 0 * keep[1]]),
    }[kind].double()
    return inputs | {"log_decay": logs[0], "log_momentum": logs[1]}


@pytest.mark.parametrize(
    "kind", ["all or nothing", "the momentum forgets sooner", "the memory forgets sooner"]
)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-10), (torch.float32, 3e-5)], ids=str)
def test_extreme_decays(kind: str, dtype: torch.dtype, limit: float) -> None:
    given = [x.to(dtype) for x in extreme(draw(70), kind).values()]
    expected = results(call, (x.double() for x in given), backend="reference")
    assert all(x.isfinite().all() for x in expected)
    found = results(call, given)
    for name, x, wanted in zip(("o", "S after", "N after", *NAMES), found, expected, strict=True):
        # where nothing is left, the gradient of a logarithm is nothing, too
        assert (x - wanted).norm() <= limit * (1e-3 + wanted.norm()), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_momentum_it_is_the_gated_delta_rule(backend: str) -> None:
    inputs = draw(70) | {"log_momentum": torch.full((B, 70, H), -math.inf, dtype=torch.float64)}
    o, S, _ = call(*inputs.values(), backend=backend)
    q, k, v, log_decay, _, step, share, S_0, _ = inputs.values()
    expected = matrix_state(q, k, v, log_decay=log_decay, update=Delta(step * share), state=S_0)
    assert_near([o, S], expected, 1e-12)


def test_it_is_a_delta_rule_of_keys_twice_as_wide() -> None:
    """S less c N decays by a alone, for c = (a / m) c + b; exact, but c overflows where a > m for long."""
    q, k, v, log_a, log_m, step, share, S, N = draw(20, key_heads=H).values()
    c, ratios = torch.zeros(B, H, dtype=torch.float64), []
    for t in range(20):
        ratios.append(c * (log_a - log_m)[:, t].exp())
        c = ratios[-1] + share[:, t]
    ratio = torch.stack(ratios, dim=1)  # c without the token's own share
    c = (ratio + share)[..., None]
    before = F.pad(c[:, :-1], (0, 0, 0, 0, 1, 0))  # c of the token before
    left = log_a.exp()[..., None]
    o, state = matrix_state(
        torch.cat([q, c * q], dim=-1),
        torch.cat([-ratio[..., None] * k, k], dim=-1),
        v,
        log_decay=torch.stack([log_a, log_m], dim=-1).repeat_interleave(K, dim=-1),
        update=Delta(step, torch.cat([left * k, left * before * k], dim=-1), "undecayed"),
        scale=K**-0.5,
        state=torch.cat([S, N], dim=-2),
        backend="reference",
    )
    wide_S, wide_N = state.chunk(2, dim=-2)
    found = call(q, k, v, log_a, log_m, step, share, S, N)
    assert_near(found, [o, wide_S + c[:, -1, :, None] * wide_N, wide_N], 1e-8)


def test_it_oscillates_along_a_key() -> None:
    """The pair of S and N has a complex pair of eigenvalues, so its memory changes sign without beta > 1."""
    a, m, b, e = 0.9, 0.9, 0.3, 1.0
    pair = torch.tensor([[a * (1 - b * e), b * m], [-e * a, m]], dtype=torch.float64)
    torch.testing.assert_close(torch.det(pair), torch.tensor(a * m, dtype=torch.float64))
    one = torch.ones(1, 9, 1, 1, dtype=torch.float64)
    logs = [torch.full((1,), math.log(x), dtype=torch.float64) for x in (a, m)]
    start = (torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    o, _ = momentum_delta(
        one, one, 0 * one, log_decay=logs[0], log_momentum=logs[1], step=one[0, :, 0], share=b * one[0, :, 0],
        state=start,
    )  # fmt: skip
    powers = [torch.linalg.matrix_power(pair, t + 1)[0, 0] for t in range(9)]
    torch.testing.assert_close(o.flatten(), torch.stack(powers))
    assert o.min() < -0.5
    assert torch.linalg.eigvals(pair).imag.abs().min() > 0.4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("points", [[1] * 5, [33, 1, 6], [64, 6]], ids=str)
def test_splitting_and_carrying_the_state_equals_the_whole(points: list[int], backend: str) -> None:
    *given, S, N = draw(sum(points)).values()
    whole, *last = call(*given, S, N, backend=backend)
    outputs = []
    for parts in zip(*(x.split(points, dim=1) for x in given), strict=True):
        o, S, N = call(*parts, S, N, backend=backend)
        outputs.append(o)
    assert_near([torch.cat(outputs, dim=1), S, N], [whole, *last], 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_keys_are_keys_of_several_heads_that_are_alike(backend: str) -> None:
    shared = draw(33, key_heads=1)
    apart = {name: x.expand(-1, -1, H, -1) if name in "qk" else x for name, x in shared.items()}
    assert_near(call(*shared.values(), backend=backend), call(*apart.values(), backend="reference"), 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_later_tokens_change_no_bit_of_earlier_outputs(backend: str) -> None:
    inputs, others = draw(70, dtype=torch.float32), draw(70, dtype=torch.float32, seed=1)
    whole = call(*inputs.values(), backend=backend)[0]
    for t in (1, 31, 33, 69):
        changed = {
            name: x if name in "SN" else torch.cat([x[:, :t], others[name][:, t:]], dim=1)
            for name, x in inputs.items()
        }
        o = call(*changed.values(), backend=backend)[0]
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t], whole[:, t])


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_stack(backend: str) -> None:
    def function(*given: Tensor) -> Tensor:
        return torch.cat([x.flatten() for x in call(*given, backend=backend)])

    assert_replicas_stack(function, [[*draw(40, seed=seed).values()] for seed in (0, 1)], 1e-9)


def test_dtypes() -> None:
    wide = draw(20)
    for dtype, limit in ((torch.bfloat16, 8e-3), (torch.float32, 1e-5)):
        narrow = [x.to(dtype) if name in "qkv" else x.float() for name, x in wide.items()]
        o, *state = call(*narrow, backend="auto")
        with torch.autocast("cpu", torch.bfloat16):
            again = call(*narrow, backend="auto")[0]
        assert (o.dtype, *(x.dtype for x in state)) == (dtype, torch.float32, torch.float32)
        assert torch.equal(again, o)
        assert error(o, call(*(x.double() for x in narrow), backend="reference")[0]) < limit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"q": x["q"][:, :-1]}, r"q, k \[B, T, Hk, K\] and v"),
        (lambda x: {"v": x["v"][:, :, :3]}, "Hk dividing H"),
        (lambda x: {name: x[name][:, :0] for name in "qkv"}, "T >= 1"),
        (lambda x: {"state": (x["v"], x["v"])}, r"two of \[B, H, K, V\] = \(2, 4, 6, 5\)"),
        (lambda x: {"share": x["v"]}, r"share must broadcast to \(2, 6, 4\), not \(2, 6, 4, 5\)"),
        (lambda x: {"backend": "triton"}, "backend must be one of auto, reference, chunkwise, not 'triton'"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[Inputs], dict[str, Any]], message: str) -> None:
    inputs = draw(6)
    given: Any = {name: inputs[name] for name in NAMES[:-2]} | change(inputs)
    with pytest.raises(ValueError, match=message):
        momentum_delta(**given)


def test_the_scale_is_by_the_width_of_keys() -> None:
    given = draw(6).values()
    assert error(call(*given)[0], call(*given, scale=K**-0.5)[0]) < 1e-12


def test_flops() -> None:
    assert flops_per_token(heads=3, key_dim=4, value_dim=5) == 3 * 4 * 5 * 10

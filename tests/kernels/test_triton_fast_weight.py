"""Linear fast weights whose keys write in Triton: what the loop over tokens says."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.fast_weight import Network, Step, fast_weight
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.verify.kernel_errors import poisoned
from tests.helpers.gradients import assert_near, assert_replicas_stack, results

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OUTPUTS, GRADIENTS = 1e-5, 5e-5

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended"),
]

TTT = Network(bias=True, residual=True)
NAMES = ("q", "k", "v", "rates", "weights", "gamma", "beta", "scales")

Inputs = list[Tensor]
Make = Callable[..., Inputs]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """Inputs by `NAMES`, of which those of a head and of a mini-batch are in float32."""

    def build(
        length: int,
        size: int = 16,
        key_dim: int = 16,
        value_dim: int | None = None,
        *,
        batch: int = 1,
        heads: int = 1,
        bias: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        values, tokens = value_dim or key_dim, (batch, length, heads)
        inputs = [
            draw(*tokens, key_dim),
            torch.nn.functional.normalize(draw(*tokens, key_dim), dim=-1),
            draw(*tokens, values),
            0.5 * draw(*tokens).sigmoid(),
            draw(heads, key_dim + bias, values) / key_dim**0.5,
            1 + 0.1 * draw(heads, values),
            0.1 * draw(heads, values),
            draw(size).sigmoid(),
        ]
        return [x.to(DEVICE, dtype if n < 3 else torch.float32) for n, x in enumerate(inputs)]

    return build


def call(
    *given: Tensor, network: Network = TTT, normed: bool = True, scaled: bool = True, **options: Any
) -> tuple[Tensor, ...]:
    q, k, v, rates, weights, gamma, beta, scales = given
    return fast_weight(
        q,
        k,
        v,
        rates,
        [weights],
        network=network,
        step=Step(len(scales)),
        norm=(gamma, beta) if normed else None,
        scales=scales if scaled else None,
        **options,
    )


in_triton = partial(call, backend="triton")


def held_to_float64(given: Inputs, **options: Any) -> None:
    """Hold outputs, state and gradients to float64, where memory that nobody has written holds NaN."""
    kept = [n for n in range(8) if (n, options.get("normed", True)) not in ((5, False), (6, False))]
    kept = [n for n in kept if n != 7 or options.get("scaled", True)]

    def of_kept(*some: Tensor, like: Inputs, backend: str) -> tuple[Tensor, ...]:
        whole = [*like]
        for n, x in zip(kept, some, strict=True):
            whole[n] = x
        return call(*whole, backend=backend, **options)

    with poisoned():
        found = results(partial(of_kept, like=given, backend="triton"), [given[n] for n in kept])
    exact = [x.double() for x in given]
    expected = results(partial(of_kept, like=exact, backend="reference"), [exact[n] for n in kept])
    assert_near(found[:2], expected[:2], OUTPUTS)
    assert_near(found[2:], expected[2:], GRADIENTS)


# one token, and parts of mini-batches
@pytest.mark.parametrize("length", [1, 63, 64, 65, 100])
def test_outputs_state_and_gradients(make: Make, length: int) -> None:
    held_to_float64(make(length))


@pytest.mark.parametrize("size", [1, 3, 20, 32])
def test_sizes_of_mini_batches(make: Make, size: int) -> None:
    held_to_float64(make(65 if size > 3 else 10, size))


@pytest.mark.parametrize("dim", [5, 28, 64, 100])
def test_widths(make: Make, dim: int) -> None:
    held_to_float64(make(37, 16, dim))


@pytest.mark.parametrize("dim", [16, 64])
def test_bfloat16_inputs_are_rounded_no_further(make: Make, dim: int) -> None:
    """The torch form rounds outputs and their gradients as much, and computes in float32."""
    given = make(37, 16, dim, dtype=torch.bfloat16)
    found, expected = (results(partial(call, backend=name), given) for name in ("triton", "chunkwise"))
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    assert_near(found, expected, 1e-3)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_other_networks(make: Make, normed: bool, bias: bool, scaled: bool) -> None:
    network = Network(bias=bias)
    held_to_float64(make(20, 8, 16, 28, bias=bias), network=network, normed=normed, scaled=scaled)


def test_sequences_and_heads_stay_apart(make: Make) -> None:
    held_to_float64(make(20, 8, batch=3, heads=2))


@torch.no_grad()
def test_its_state_may_be_carried_on(make: Make) -> None:
    given = make(40, 16, heads=2, batch=2)
    whole = in_triton(*given)
    for point in (1, 16, 23, 32):
        before, after = ([x[:, at] for x in given[:4]] for at in (slice(point), slice(point, None)))
        o, state = in_triton(*before, *given[4:])
        seen = torch.full((2,), point, device=DEVICE)
        more, state = call(*after, *given[4:], state=state, seen=seen)
        assert_near([torch.cat([o, more], dim=1), state], whole, 1e-5)


def test_replicas_stack_and_results_are_the_same_every_time(make: Make) -> None:
    def output(*given: Tensor) -> Tensor:
        return in_triton(*given)[0]

    each = [make(20, 8, batch=2, heads=2) for _ in range(2)]
    assert_replicas_stack(output, each, 1e-5)
    assert all(map(torch.equal, results(output, each[0]), results(output, each[0])))


def test_the_future_is_not_seen(make: Make) -> None:
    given = make(40)
    whole, _ = in_triton(*given)
    for t in (1, 16, 39):
        changed = [torch.cat([x[:, :t], 0.5 * x[:, t:]], dim=1) for x in given[:4]]
        o, _ = in_triton(*changed, *given[4:])
        assert_near([o[:, :t]], [whole[:, :t]], 1e-6)
        assert not torch.equal(o[:, t:], whole[:, t:])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_it_compiles_whole(make: Make) -> None:
    given = make(20, 8)
    compiled = torch.compile(in_triton, fullgraph=True, backend="aot_eager")
    assert_near(results(compiled, given), results(in_triton, given), 1e-6)


@pytest.mark.skipif(INTERPRETED, reason="there is no GPU")
@pytest.mark.gpu
def test_it_is_captured(make: Make, replayed: Callable[..., Any]) -> None:
    given, others = make(300, heads=2), make(300, heads=2)
    captured = replayed(lambda: results(in_triton, given), given, others)
    assert all(map(torch.equal, captured, results(in_triton, others)))


def test_what_it_has_no_kernel_for_is_refused(make: Make) -> None:
    q, k, v, rates, weights, *_ = make(4)
    alone = {"network": Network(bias=True), "step": Step(4)}
    refused = (
        {"network": Network(bias=True, loss="product")},
        {"step": Step(4, "before")},
        {"step": Step(33)},
        {"state": weights.flatten(-2)[None].repeat(1, 1, 2), "seen": torch.tensor([0], device=DEVICE)},
    )
    for changed in refused:
        with pytest.raises(ValueError, match="one of auto, reference, chunkwise"):
            fast_weight(q, k, v, rates, [weights], **alone | changed, backend="triton")
    with pytest.raises(ValueError, match="not in float64"):
        in_triton(*(x.double() for x in make(4)))

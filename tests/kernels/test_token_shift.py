from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.token_shift import token_shift, token_shift_by_token
from linbench.kernels.token_shift.launch import Launch, backward_launch, forward_launch
from tests.helpers.gradients import error

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
LIMITS = {torch.float32: (1e-6, 2e-6), torch.bfloat16: (8e-3, 1.5e-2)}
B = 2


class Inputs(NamedTuple):
    """The arguments of the kernel, with offsets as one tensor [N, B, T, D]."""

    x: Tensor
    mix: Tensor
    last: Tensor | None
    offset: Tensor | None


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    def build(
        length: int,
        *,
        streams: int = 3,
        width: int = 20,
        last: bool = True,
        offset: bool = False,
        dtype: torch.dtype = torch.float32,
        lead: Any = (),
    ) -> Inputs:
        def draw(*shape: int) -> Tensor:
            return torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

        shape = B, length, width
        return Inputs(
            draw(*shape),
            draw(streams, width),
            draw(B, width) if last else None,
            draw(streams, *shape) if offset else None,
        )

    return build


def reference(x: Tensor, mix: Tensor, last: Tensor | None, offset: Tensor | None) -> Tensor:
    """[N, B, T, D], token by token."""
    earlier, streams = torch.zeros_like(x[:, 0]) if last is None else last, []
    for t, own in enumerate(x.unbind(1)):
        share = mix[:, None] if offset is None else mix[:, None] + offset[:, :, t]
        streams.append((1 - share) * own + share * earlier)
        earlier = own
    return torch.stack(streams, dim=2)


def shifted(x: Tensor, mix: Tensor, last: Tensor | None, offset: Tensor | None, **options: Any) -> Tensor:
    """The door, its streams as one tensor."""
    return torch.stack(
        token_shift(x, mix, last, offset=None if offset is None else offset.unbind(), **options)
    )


def results(
    function: Callable[..., Tensor], inputs: tuple[Tensor | None, ...], **options: Any
) -> list[Tensor]:
    """The streams, and the gradients of a loss that weighs every number of them, by weights that bfloat16
    has."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    y = function(*leaves, **options)
    weights = (torch.arange(y.numel(), device=DEVICE) % 251 - 100).view(y.shape) / 128
    return [
        y.detach(),
        *torch.autograd.grad((y.double() * weights).sum(), [x for x in leaves if x is not None]),
    ]


def assert_parity(backend: str, inputs: Inputs, **options: Any) -> None:
    given = results(shifted, inputs, backend=backend, **options)
    expected = results(reference, tuple(None if x is None else x.double() for x in inputs))
    limit, gradient_limit = LIMITS[inputs.x.dtype]
    assert [x.dtype for x in given[1:]] == [x.dtype for x in inputs if x is not None]
    assert error(given[0], expected[0]) < limit
    assert max(map(error, given[1:], expected[1:])) < gradient_limit


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 100])
@pytest.mark.parametrize(
    ("streams", "width", "last", "offset"),
    [
        (1, 20, True, False),
        (6, 64, False, False),
        (4, 70, True, False),
        (5, 20, True, True),
        (2, 300, False, True),
    ],
)
def test_streams_and_gradients_equal_the_reference(
    make: Callable[..., Inputs], backend: str, length: int, streams: int, width: int, last: bool, offset: bool
) -> None:
    assert_parity(backend, make(length, streams=streams, width=width, last=last, offset=offset))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("offset", [False, True])
def test_there_may_be_any_number_of_streams(make: Callable[..., Inputs], backend: str, offset: bool) -> None:
    assert_parity(backend, make(5, streams=8, offset=offset))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("offset", [False, True])
def test_bfloat16_loses_only_its_own_rounding(
    make: Callable[..., Inputs], backend: str, offset: bool
) -> None:
    inputs = make(65, dtype=torch.bfloat16, offset=offset)
    assert_parity(backend, inputs)
    assert {y.dtype for y in token_shift(*inputs[:3], backend=backend)} == {torch.bfloat16}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("narrow", [False, True])
def test_the_streams_come_in_the_dtype_that_is_asked_for(
    make: Callable[..., Inputs], backend: str, narrow: bool
) -> None:
    """narrow: so are the tokens, and the mix is not, as under torch.autocast."""
    inputs = make(65)
    inputs = inputs._replace(x=inputs.x.bfloat16()) if narrow else inputs
    y, *gradients = results(shifted, inputs, dtype=torch.bfloat16, backend=backend)
    expected, *wanted = results(reference, tuple(None if x is None else x.double() for x in inputs))
    assert y.dtype == torch.bfloat16
    assert [x.dtype for x in gradients] == [x.dtype for x in inputs if x is not None]
    assert error(y, expected) < LIMITS[torch.bfloat16][0]
    assert max(map(error, gradients, wanted)) < LIMITS[torch.bfloat16][1]


@pytest.mark.parametrize("offset", [False, True])
def test_float64_stays_float64(make: Callable[..., Inputs], offset: bool) -> None:
    inputs = make(9, dtype=torch.float64, offset=offset)
    assert max(map(error, results(shifted, inputs), results(reference, inputs))) < 1e-14


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("last", [False, True])
def test_offsets_may_be_read_from_a_first_mixture(
    make: Callable[..., Inputs], backend: str, last: bool
) -> None:
    x, mix, earlier, up = make(33, streams=3, last=last, offset=True)
    first, up = mix[0].flip(0), up[:, 0, :20, :20]

    def by_token(
        x: Tensor,
        mix: Tensor,
        first: Tensor,
        up: Tensor,
        *last: Tensor,
        door: Callable[..., Any],
        **options: Any,
    ) -> Tensor:
        return torch.stack(
            [*door(x, first, lambda read: [read.tanh() @ each for each in up], mix, *last, **options)]
        )

    def by_hand(
        x: Tensor,
        first: Tensor,
        offset: Callable[[Tensor], list[Tensor]],
        mix: Tensor,
        last: Tensor | None = None,
    ) -> Tensor:
        (read,) = reference(x, first[None], last, None)
        return reference(x, mix, last, torch.stack(offset(read)))

    inputs = x, mix, first, up, *([] if earlier is None else [earlier])
    given = results(partial(by_token, door=token_shift_by_token), inputs, backend=backend)
    expected = results(partial(by_token, door=by_hand), tuple(each.double() for each in inputs))
    assert max(map(error, given, expected)) < 5e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (1, 4), (3, 2)])
def test_a_split_sequence_gives_the_same(
    make: Callable[..., Inputs], backend: str, pieces: tuple[int, ...]
) -> None:
    def split(x: Tensor, mix: Tensor, last: Tensor) -> Tensor:
        parts = []
        for piece in x.split(pieces, dim=1):
            parts.append(shifted(piece, mix, last, None, backend=backend))
            last = piece[:, -1]
        return torch.cat(parts, dim=2)

    x, mix, last, _ = make(5)
    whole = results(partial(shifted, offset=None), (x, mix, last), backend=backend)
    assert (
        max(
            error(one, other.double())
            for one, other in zip(results(split, (x, mix, last)), whole, strict=True)
        )
        < 1e-6
    )


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_token_is_seen_by_itself_and_the_next_alone(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(70, streams=2)
    y = shifted(*inputs, backend=backend)
    for t in (0, 1, 15, 16, 63, 69):
        x = inputs.x.clone()
        x[:, t] += 1
        changed = (
            (shifted(*inputs._replace(x=x), backend=backend) != y).flatten(3).any(dim=3).any(dim=1).any(dim=0)
        )
        assert changed.nonzero().flatten().tolist() == [t, t + 1][: 70 - t]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_no_number_stays_where_it_is(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(40, streams=2)
    inputs.x[1, -1] = float("nan")
    y, dx, _, dlast = results(shifted, inputs, backend=backend)
    assert y[:, 1, -1].isnan().all()
    assert y[:, 0].isfinite().all()
    assert y[:, 1, :-1].isfinite().all()
    assert dx.isfinite().all()
    assert dlast.isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_streams_that_nobody_uses_have_no_gradient(make: Callable[..., Inputs], backend: str) -> None:
    x, mix, last, offset = (each.requires_grad_() for each in make(9, offset=True))
    y = token_shift(x, mix, last, offset=offset.unbind(), backend=backend)
    gradients = torch.autograd.grad(y[1].square().sum(), (x, mix, last, offset))
    expected = torch.autograd.grad(reference(x, mix, last, offset)[1].square().sum(), (x, mix, last, offset))
    assert all(
        torch.allclose(given, wanted, atol=1e-5) for given, wanted in zip(gradients, expected, strict=True)
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_taken(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(6, offset=True)
    x, mix, last, offset = inputs
    views = (
        torch.stack([x, -x], dim=-1)[..., 0],
        mix.T.contiguous().T,
        last.T.contiguous().T,
        offset.transpose(0, 2).contiguous().transpose(0, 2),
    )
    assert not any(view.is_contiguous() for view in views)
    assert all(
        map(torch.equal, results(shifted, views, backend=backend), results(shifted, inputs, backend=backend))
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("last", "offset"), [(False, False), (True, True)])
@pytest.mark.parametrize("together", [False, True])
def test_replicas_stack(
    make: Callable[..., Inputs], backend: str, last: bool, offset: bool, together: bool
) -> None:
    """together: they see the same tokens."""
    inputs = make(40, lead=(3,), last=last, offset=offset)
    if together:
        inputs = inputs._replace(x=inputs.x[0])
    given = [each for each in inputs if each is not None]

    def one(x: Tensor, mix: Tensor, *others: Tensor) -> Tensor:
        return shifted(x, mix, others[0] if last else None, others[-1] if offset else None, backend=backend)

    dims = None if together else 0, *[0] * (len(given) - 1)
    stacked = results(torch.vmap(one, in_dims=dims), tuple(given))
    alone = results(
        lambda x, *own: torch.stack(
            [one(x if together else x[i], *(each[i] for each in own)) for i in range(3)]
        ),
        tuple(given),
    )
    assert max(error(x, wanted.double()) for x, wanted in zip(stacked, alone, strict=True)) < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("length", "offset"), [(1, False), (33, True), (100, False)])
def test_no_unwritten_memory_is_read(
    make: Callable[..., Inputs], request: pytest.FixtureRequest, backend: str, length: int, offset: bool
) -> None:
    inputs = make(length, offset=offset)
    clean = results(shifted, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(shifted, inputs, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize(("last", "offset"), [(False, False), (True, True)])
def test_the_operator_compiles_whole(make: Callable[..., Inputs], last: bool, offset: bool) -> None:
    inputs = make(5, last=last, offset=offset)
    compiled = torch.compile(shifted, fullgraph=True, backend="aot_eager")
    assert all(
        map(
            torch.equal,
            results(compiled, inputs, backend="triton"),
            results(shifted, inputs, backend="triton"),
        )
    )
    leaves = [
        None if leaf is None else leaf.requires_grad_() for leaf in (inputs.x, inputs.mix[None], inputs.last)
    ]
    offsets = [
        each.detach().requires_grad_() for each in ([] if inputs.offset is None else inputs.offset.unbind())
    ]
    torch.library.opcheck(torch.ops.linbench.token_shift, (*leaves, offsets, torch.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: given._replace(x=given.x[0]), "B, T, D"),
        (lambda given: given._replace(x=given.x[:, :0]), "T >= 1"),
        (lambda given: given._replace(mix=given.mix[:, 1:]), "N, D"),
        (lambda given: given._replace(mix=given.mix[:0]), "N >= 1"),
        (lambda given: given._replace(last=given.last[:1]), "last"),
        (lambda given: given._replace(offset=given.offset[1:]), "each of 3 streams"),
        (lambda given: given._replace(offset=given.offset[:, :, 1:]), "shaped as x"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    make: Callable[..., Inputs], change: Callable[[Inputs], Inputs], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        shifted(*change(make(3, offset=True)))
    x, mix, *_ = make(3)
    with pytest.raises(ValueError, match="first"):
        token_shift_by_token(x, mix[0, 1:], lambda read: [read, read, read], mix)


def test_a_backend_that_does_not_run_is_refused(make: Callable[..., Inputs]) -> None:
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        shifted(*make(3), backend="fast")
    with pytest.raises(ValueError, match="float64"):
        shifted(*make(3, dtype=torch.float64), backend="triton")


def test_launches_fill_a_gpu() -> None:
    assert forward_launch(65536, 128) == Launch(rows=8, steps=1, block=128, warps=4)
    assert backward_launch(1, 65536, 128) == Launch(rows=4, steps=16, block=128, warps=4)
    assert backward_launch(1, 4096, 128).steps == 4
    assert backward_launch(512, 1, 128) == Launch(rows=1, steps=1, block=128, warps=1)
    blocks = {width: forward_launch(64, width).block for width in (1, 20, 96, 192, 768, 1000, 2048)}
    assert blocks == {1: 1, 20: 32, 96: 128, 192: 64, 768: 256, 1000: 128, 2048: 256}


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize(("rows", "steps"), [(1, 16), (2, 3), (8, 1), (64, 1)])
def test_any_launch_gives_the_same(
    make: Callable[..., Inputs], monkeypatch: pytest.MonkeyPatch, rows: int, steps: int
) -> None:
    from linbench.kernels.token_shift import operator

    rule = operator.backward_launch
    monkeypatch.setattr(
        operator, "backward_launch", lambda *given: rule(*given)._replace(rows=rows, steps=steps)
    )
    assert_parity("triton", make(37, offset=True))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(make: Callable[..., Inputs], replayed: Callable[..., Any]) -> None:
    inputs, others = make(65, offset=True), make(65, offset=True)
    leaves = [x.clone().requires_grad_() for x in inputs]

    def step() -> tuple[Tensor, ...]:
        y = shifted(*leaves, backend="triton")
        return y, *torch.autograd.grad(y.square().sum(), leaves)

    captured = replayed(step, leaves, others)
    assert all(map(torch.equal, captured, step()))

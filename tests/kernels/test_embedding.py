from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.embedding import embedding
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.matrix_state import named, pairwise

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
TRITON = pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
LIMITS = {torch.float32: 3e-6, torch.bfloat16: 8e-3}

Inputs = tuple[Tensor, Tensor]
Draw = Callable[..., Inputs]


@pytest.fixture
def draw(generator: torch.Generator) -> Draw:
    """A weight [V, D] and an index that takes row 0 every second time, or the index given."""

    def make(
        rows: int | Tensor,
        vocabulary: int,
        width: int,
        *,
        lead: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        weight = torch.randn(*lead, vocabulary, width, generator=generator, dtype=torch.float64).to(
            DEVICE, dtype
        )
        if isinstance(rows, Tensor):
            return weight, rows.to(DEVICE)
        index = torch.randint(vocabulary, (*lead, rows), generator=generator)
        return weight, (index * torch.randint(2, index.shape, generator=generator)).to(DEVICE)

    return make


@pytest.fixture(params=["one", "rule"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum parts of a run in Triton one after another, or as the rule has it."""
    if request.param == "one" and "triton" in BACKENDS:
        launched(monkeypatch, parts=1)


def launched(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    """Let the launch rule choose otherwise."""
    from linbench.kernels.embedding import triton

    rule = triton.launch
    monkeypatch.setattr(triton, "launch", lambda rows, width: rule(rows, width)._replace(**changes))


def slopes(shape: tuple[int, ...]) -> Tensor:
    """Return the weights of the tests' loss, a different one for each number.

    They have both signs, but more are positive, so that sums do not cancel.
    """
    return 1 + 1.5 * torch.linspace(
        -300, 400, torch.Size(shape).numel(), device=DEVICE, dtype=torch.float64
    ).sin().view(shape)


def results(function: Callable[..., Tensor], inputs: Inputs, **options: Any) -> Inputs:
    """Output, and the gradient of the weight."""
    weight, index = inputs[0].clone().requires_grad_(), inputs[1]
    y = function(weight, index, **options)
    y.backward(slopes(y.shape).to(y.dtype))
    assert weight.grad is not None
    return y.detach(), weight.grad


def expected(inputs: Inputs) -> Inputs:
    """Output, and the gradient in float64, place by place, of what the slopes are in the dtype of the
    weight."""
    weight, index = inputs
    y = torch.stack([weight[i] for i in index.flatten().tolist()]).view(*index.shape, -1)
    gradient = torch.zeros(weight.shape, dtype=torch.float64, device=DEVICE)
    for i, slope in zip(
        index.flatten().tolist(), slopes(y.shape).to(weight.dtype).flatten(0, -2), strict=True
    ):
        gradient[i] += slope.double()
    return y, gradient


def error(given: Tensor, wanted: Tensor) -> float:
    """The largest ||given - wanted|| / ||wanted|| of any row; infinite where anything is NaN or a row that
    should be zero is not."""
    assert given.shape == wanted.shape
    distance, norm = (given.double() - wanted).norm(dim=-1), wanted.norm(dim=-1)
    measured = float(torch.where(distance == 0, 0.0, distance / norm).max())
    return measured if measured == measured else float("inf")


def assert_parity(backend: str, inputs: Inputs) -> None:
    (y, gradient), (wanted, wanted_gradient) = results(embedding, inputs, backend=backend), expected(inputs)
    assert gradient.dtype == inputs[0].dtype
    assert torch.equal(y, wanted)
    assert error(gradient, wanted_gradient) < LIMITS[gradient.dtype]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "sizes",
    pairwise(rows=[1, 2, 63, 65, 100, 1000], vocabulary=[1, 2, 7, 300], width=[1, 16, 65, 130]),
    ids=named,
)
def test_rows_and_their_gradients_equal_the_reference(
    draw: Draw, backend: str, sizes: dict[str, int]
) -> None:
    assert_parity(backend, draw(**sizes))


PATTERNS = {
    "one hot": torch.where(torch.arange(200) % 4 == 0, torch.arange(200) % 37, 5),
    "all equal": torch.full((200,), 4),
    "all different": torch.arange(200).flip(0),
    "runs end where chunks do": torch.arange(160) // 16,
    "runs of two chunks": torch.arange(160) // 32,
    "runs begin with a chunk and end within": torch.cat(
        [torch.zeros(16), torch.ones(20), torch.full((28,), 2), torch.full((40,), 3)]
    ).long(),
    "runs begin in the last place of a chunk": torch.cat(
        [torch.zeros(15), torch.ones(17), torch.full((15,), 2), torch.full((34,), 3)]
    ).long(),
    "runs end in the first place of a chunk": torch.cat(
        [torch.zeros(17), torch.ones(16), torch.full((32,), 2), torch.full((16,), 3)]
    ).long(),
    "a run in the middle of many chunks": torch.cat(
        [torch.arange(8), torch.full((150,), 8), torch.arange(9, 20)]
    ),
    "only the last row": torch.full((65,), 199),
    "shaped": torch.arange(60).view(3, 4, 5) % 7,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.usefixtures("parts")
def test_runs_of_the_same_row(draw: Draw, backend: str, pattern: str) -> None:
    assert_parity(backend, draw(PATTERNS[pattern], 200, 24))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_chunk_and_several_blocks_of_columns(
    draw: Draw, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "triton":
        launched(monkeypatch, chunk=64, columns=16, rows=4, narrow=8)
    assert_parity(backend, draw(300, 9, 40))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("vocabulary", [32766, 32767, 32768, 32769, 70_000])
def test_vocabularies_around_the_widths_of_keys(draw: Draw, backend: str, vocabulary: int) -> None:
    assert_parity(
        backend,
        draw(torch.tensor([0, vocabulary - 1, 5, 32766 % vocabulary, vocabulary - 1, 0]), vocabulary, 2),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_is_summed_in_float32(draw: Draw, backend: str) -> None:
    assert_parity(backend, draw(1000, 7, 16, dtype=torch.bfloat16))


def test_float64_stays_float64(draw: Draw) -> None:
    inputs = draw(100, 7, 16, dtype=torch.float64)
    (y, gradient), (wanted, wanted_gradient) = results(embedding, inputs), expected(inputs)
    assert torch.equal(y, wanted)
    assert error(gradient, wanted_gradient) < 1e-14


@pytest.mark.skipif("torch" not in BACKENDS, reason="Triton only")
def test_in_torch_it_is_torchs_own(draw: Draw) -> None:
    inputs = draw(100, 7, 16)
    given, wanted = (
        results(embedding, inputs, backend="torch"),
        results(lambda weight, index: F.embedding(index, weight), inputs),
    )
    assert all(map(torch.equal, given, wanted))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_do_not_occur_have_no_gradient(draw: Draw, backend: str) -> None:
    _, gradient = results(embedding, draw(3 * torch.arange(50), 200, 8), backend=backend)
    occurs = torch.zeros(200, dtype=torch.bool, device=DEVICE)
    occurs[:150:3] = True
    assert gradient[occurs].any(dim=1).all()
    assert not gradient[~occurs].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_taken(draw: Draw, backend: str) -> None:
    y, gradient = results(embedding, draw(torch.empty(2, 0, dtype=torch.int64), 7, 8), backend=backend)
    assert y.shape == (2, 0, 8)
    assert not gradient.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_taken(draw: Draw, backend: str) -> None:
    weight, index = draw(60, 9, 8)
    views = weight.T.contiguous().T, torch.stack([index, index], -1)[:, 0]
    assert not any(view.is_contiguous() for view in views)
    leaf = views[0].requires_grad_()
    y = embedding(leaf, views[1], backend=backend)
    assert torch.equal(y, weight[index])
    (gradient,) = torch.autograd.grad(y, leaf, slopes((8, 60)).float().T)
    assert (
        error(
            gradient,
            torch.zeros(9, 8, dtype=torch.float64, device=DEVICE).index_add_(
                0, index, slopes((8, 60)).float().double().T
            ),
        )
        < 1e-6
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_every_time(draw: Draw, backend: str) -> None:
    inputs = draw(1000, 30, 16)
    first, again = (results(embedding, inputs, backend=backend) for _ in range(2))
    assert all(map(torch.equal, first, again))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alone", [(), ("weight",), ("index",)], ids=["both", "one weight", "one index"])
@pytest.mark.parametrize("dims", [(0, 0), (1, 2)])
def test_a_replica_is_what_it_is_alone(
    draw: Draw, backend: str, alone: tuple[str, ...], dims: tuple[int, int]
) -> None:
    weight, index = draw(90, 7, 24, lead=(3,))
    index = index.view(3, 2, 45)
    weight, index = weight[0] if "weight" in alone else weight, index[0] if "index" in alone else index
    in_dims = None if "weight" in alone else dims[0], None if "index" in alone else dims[1]
    moved = tuple(
        x if dim is None else x.movedim(0, dim).contiguous()
        for x, dim in zip((weight, index), in_dims, strict=True)
    )
    y, gradient = results(torch.vmap(lambda *one: embedding(*one, backend=backend), in_dims), moved)
    assert y.shape == (3, 2, 45, 24)
    each = [
        (weight if "weight" in alone else weight[i], index if "index" in alone else index[i])
        for i in range(3)
    ]
    leaves = [w.clone().requires_grad_() for w, _ in each]
    for i, ((w, taken), leaf) in enumerate(zip(each, leaves, strict=True)):
        assert torch.equal(y[i], w[taken])
        embedding(leaf, taken, backend=backend).backward(slopes(y.shape)[i].float())
    wanted = torch.stack([leaf.grad for leaf in leaves if leaf.grad is not None])
    if "weight" in alone:
        assert error(gradient, wanted.double().sum(dim=0)) < 1e-6
    elif backend == "triton":
        assert torch.equal(gradient.movedim(dims[0], 0), wanted)
    else:
        assert error(gradient.movedim(dims[0], 0), wanted.double()) < 1e-6


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # by the interpreter, in inf - inf
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_replica_does_not_spoil_another(draw: Draw, backend: str) -> None:
    weight, index = draw(50, 7, 8, lead=(3,))
    weight.requires_grad_()
    slope = slopes((3, 50, 8)).float()
    y = torch.vmap(lambda *one: embedding(*one, backend=backend))(weight, index)
    (clean,) = torch.autograd.grad(y, weight, slope, retain_graph=True)
    slope[1, 20] = float("inf")
    slope[1, 30] = float("nan")
    (spoilt,) = torch.autograd.grad(y, weight, slope)
    assert torch.equal(spoilt[[0, 2]], clean[[0, 2]])
    assert not spoilt[1, index[1, 20]].isfinite().any()
    assert spoilt[1, index[1, 30]].isnan().all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [5, 100])
@pytest.mark.usefixtures("parts")
def test_no_unwritten_memory_is_read(
    draw: Draw, request: pytest.FixtureRequest, backend: str, rows: int
) -> None:
    inputs = draw(rows, 7, 24)
    clean = results(embedding, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(embedding, inputs, backend=backend), clean))


@pytest.mark.parametrize("wrong", [-1, 7, 2**40, -(2**40)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_index_out_of_range_is_not_passed_over(draw: Draw, backend: str, wrong: int) -> None:
    weight, index = draw(40, 7, 8, lead=(2,))
    index[0, :2] = wrong
    if backend == "torch":
        if DEVICE == "cpu":
            with pytest.raises(IndexError, match="out of range"):
                embedding(weight[0], index[0], backend=backend)
        return
    weight.requires_grad_()
    y = torch.vmap(lambda *one: embedding(*one, backend=backend))(weight, index)
    slope = slopes(y.shape).float()
    y.backward(slope)
    assert y[0, :2].isnan().all()
    assert y[0, 2:].isfinite().all()
    assert y[1].isfinite().all()
    for i, first in ((0, 2), (1, 0)):
        wanted = torch.zeros(7, 8, dtype=torch.float64, device=DEVICE).index_add_(
            0, index[i, first:], slope[i, first:].double()
        )
        assert weight.grad is not None
        assert error(weight.grad[i], wanted) < 1e-6


def test_what_does_not_fit_is_refused(draw: Draw) -> None:
    weight, index = draw(5, 7, 8)
    with pytest.raises(ValueError, match="weight"):
        embedding(weight[None], index)
    with pytest.raises(ValueError, match="int64"):
        embedding(weight, index.int())
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        embedding(weight, index, backend="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float64"):
        embedding(weight.double(), index, backend="triton")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_weight_that_is_not_trained(draw: Draw, backend: str) -> None:
    assert not embedding(*draw(5, 7, 8), backend=backend).requires_grad


@TRITON
def test_the_operator_compiles_whole(draw: Draw) -> None:
    weight, index = draw(60, 7, 8)
    inputs = weight, index.view(3, 20)
    given = results(torch.compile(embedding, fullgraph=True, backend="aot_eager"), inputs, backend="triton")
    assert all(map(torch.equal, given, results(embedding, inputs, backend="triton")))
    torch.library.opcheck(torch.ops.linbench.embedding, (weight[None].requires_grad_(), index))


@TRITON
def test_there_is_no_second_derivative(draw: Draw) -> None:
    weight, index = draw(5, 7, 8)
    slope = torch.ones(5, 8, device=DEVICE, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        embedding(weight.requires_grad_(), index, backend="triton"), weight, slope, create_graph=True
    )
    with pytest.raises(RuntimeError, match="embedding_backward"):
        gradient.sum().backward()


@TRITON
def test_gradients_stack_too(draw: Draw) -> None:
    """torch.vmap over a gradient, where the others are one gradient over torch.vmap."""
    from linbench.kernels.embedding.triton import backward

    weight, index = draw(50, 7, 8, lead=(3,))
    dy = slopes((3, 50, 8)).float()
    given = torch.vmap(backward)(dy, index, weight[:, None])
    assert torch.equal(given, torch.stack([backward(dy[i], index[i], weight[i : i + 1]) for i in range(3)]))


@TRITON
def test_launches_fill_a_gpu() -> None:
    from linbench.kernels.embedding.triton import launch

    assert [launch(rows, 64).chunk for rows in (0, 1, 1000, 8191, 8192, 16383, 16384, 32768, 10**7)] == [
        16,
        16,
        16,
        16,
        32,
        32,
        64,
        64,
        64,
    ]
    assert [launch(1000, width).columns for width in (1, 16, 17, 64, 130, 3000)] == [16, 16, 32, 64, 64, 64]
    assert [launch(1000, width).parts for width in (1, 16, 17, 64, 130, 3000)] == [
        512,
        512,
        256,
        256,
        256,
        256,
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_a_step_of_training(draw: Draw, width: int) -> None:
    """Sizes at which chunks are largest, three of four places the same row."""
    weight, index = draw(32768, 8192, width)
    index[torch.arange(32768, device=DEVICE) % 2 == 0] = 0
    y, gradient = results(embedding, (weight, index), backend="triton")
    wanted = torch.zeros(8192, width, dtype=torch.float64, device=DEVICE).index_add_(
        0, index, slopes(y.shape).float().double()
    )
    assert torch.equal(y, weight[index])
    assert error(gradient, wanted) < 5e-6


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(draw: Draw, replayed: Callable[..., Any]) -> None:
    (weight, index), others = draw(5000, 700, 48), draw(5000, 700, 48)
    weight.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        y = embedding(weight, index, backend="triton")
        return y, *torch.autograd.grad(y.square().sum(), weight)

    captured = replayed(step, (weight, index), others)
    assert all(map(torch.equal, captured, step()))

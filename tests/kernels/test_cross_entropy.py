from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.cross_entropy import cross_entropy, operator
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import error

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
LIMITS = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}
IGNORE = -100

Inputs = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    """hidden, weight and targets, every third of which is to be ignored."""

    def build(
        rows: int,
        *,
        vocabulary: int = 37,
        width: int = 8,
        dtype: torch.dtype = torch.float32,
        lead: tuple[int, ...] = (),
    ) -> Inputs:
        hidden, weight = (
            torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)
            for shape in ((rows, width), (vocabulary, width))
        )
        targets = torch.randint(vocabulary, (*lead, rows), generator=generator)
        targets[..., 1::3] = IGNORE
        return hidden, weight, targets.to(DEVICE)

    return build


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most eight rows of the tests' width at a time."""
    monkeypatch.setattr(operator, "LOGITS", {"cpu": 1, "cuda": 1})


def reference(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Row by row."""
    losses = []
    for row, target in zip(hidden, targets.tolist(), strict=True):
        if target != IGNORE:
            logits = weight @ row
            losses.append(
                torch.log(torch.exp(logits - logits.max().detach()).sum())
                + logits.max().detach()
                - logits[target]
            )
    return torch.stack(losses).mean()


def results(function: Callable[..., Tensor], inputs: Inputs, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """Losses, and the gradients of a weighted sum of them."""
    *leaves, targets = inputs
    leaves = [x.clone().requires_grad_() for x in leaves]
    loss = function(*leaves, targets, **options)
    (loss * torch.linspace(1.7, 3, loss.numel(), device=DEVICE).view(loss.shape)).sum().backward()
    return loss.detach(), [x.grad for x in leaves]


def assert_parity(backend: str, inputs: Inputs) -> None:
    dtype = inputs[0].dtype
    loss, grads = results(cross_entropy, inputs, backend=backend)
    expected, expected_grads = results(reference, (inputs[0].double(), inputs[1].double(), inputs[2]))
    assert loss.dtype == torch.float32
    assert all(grad.dtype == dtype for grad in grads)
    assert error(loss, expected) < LIMITS[dtype][0]
    assert max(map(error, grads, expected_grads)) < LIMITS[dtype][1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 63, 65, 100])
@pytest.mark.parametrize("vocabulary", [2, 37, 128])
@pytest.mark.usefixtures("small_blocks")
def test_loss_and_gradients_equal_the_reference(
    make: Callable[..., Inputs], backend: str, rows: int, vocabulary: int
) -> None:
    assert_parity(backend, make(rows, vocabulary=vocabulary))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 5])
def test_a_vocabulary_too_large_for_one_tile(make: Callable[..., Inputs], backend: str, rows: int) -> None:
    assert_parity(backend, make(rows, vocabulary=20_001))


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_in_one_block(make: Callable[..., Inputs], backend: str) -> None:
    assert_parity(backend, make(65))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("small_blocks")
def test_bfloat16_loses_only_its_own_rounding(make: Callable[..., Inputs], backend: str) -> None:
    assert_parity(backend, make(65, dtype=torch.bfloat16))


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_logits_do_not_overflow(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(9)
    assert_parity(backend, (100 * hidden, 10 * weight, targets))


@pytest.mark.usefixtures("small_blocks")
def test_float64_stays_float64(make: Callable[..., Inputs]) -> None:
    inputs = make(20, dtype=torch.float64)
    (loss, grads), (expected, expected_grads) = results(cross_entropy, inputs), results(reference, inputs)
    assert error(loss, expected) < 1e-13
    assert max(map(error, grads, expected_grads)) < 1e-13


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("small_blocks")
def test_it_is_torchs_own_where_that_fits(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(20)
    expected = F.cross_entropy(hidden @ weight.T, targets)
    assert error(cross_entropy(hidden, weight, targets, backend=backend), expected.double()) < 1e-6
    other = targets.masked_fill(targets == IGNORE, 5)
    expected = F.cross_entropy(hidden @ weight.T, other, ignore_index=5)
    assert error(cross_entropy(hidden, weight, other, ignore=5, backend=backend), expected.double()) < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [0, 4])
def test_nothing_due_is_nan_without_gradients(make: Callable[..., Inputs], backend: str, rows: int) -> None:
    hidden, weight, targets = make(rows)
    loss, grads = results(cross_entropy, (hidden, weight, torch.full_like(targets, IGNORE)), backend=backend)
    assert loss.isnan()
    assert F.cross_entropy(hidden @ weight.T, torch.full_like(targets, IGNORE)).isnan()
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("small_blocks")
def test_replicas_are_each_their_own(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(20, lead=(3,))
    targets[0, 2:], targets[2] = IGNORE, 4  # different numbers are due
    inputs = hidden, weight, targets

    def one_by_one(*given: Tensor) -> Tensor:
        return torch.stack([cross_entropy(*(x[i] for x in given), backend=backend) for i in range(3)])

    expected, expected_grads = results(one_by_one, inputs)
    for function in (
        cross_entropy,
        lambda *given, **options: torch.vmap(lambda *one: cross_entropy(*one, **options))(*given),
    ):
        loss, grads = results(function, inputs, backend=backend)
        assert error(loss, expected.double()) < 1e-6
        assert (
            max(error(given, wanted.double()) for given, wanted in zip(grads, expected_grads, strict=True))
            < 1e-6
        )


def test_logits_are_never_all_there(make: Callable[..., Inputs], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    block = operator.eager.block

    def record(logits: Tensor, *args: Any, **options: Any) -> None:
        seen.append(logits.shape)
        block(logits, *args, **options)

    monkeypatch.setattr(operator.eager, "block", record)
    monkeypatch.setattr(operator, "LOGITS", dict.fromkeys(operator.LOGITS, 40 * 37))
    cross_entropy(*make(100), backend="torch")
    assert seen == [(1, 34, 37), (1, 34, 37), (1, 32, 37)]


@pytest.mark.parametrize(
    ("rows", "width", "sizes"), [(10, 4, [4, 4, 2]), (10, 7, [5, 5]), (8, 8, [8]), (0, 8, [0])]
)
@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_no_shorter_than_the_width(rows: int, width: int, sizes: list[int]) -> None:
    both = operator.blocks(torch.empty(2, rows, width), torch.empty(2, 50, width))
    found = [part for some, part in both if some == slice(0, 1)]
    assert both[len(found) :] == [(slice(1, 2), part) for part in found]
    assert [part.stop - part.start for part in found] == sizes
    assert [i for part in found for i in range(part.start, part.stop)] == list(range(rows))


def test_small_replicas_share_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "LOGITS", {"cpu": 2 * 10 * 50, "cuda": 1})
    found = operator.blocks(torch.empty(5, 10, 4), torch.empty(5, 50, 4))
    assert found == [(slice(start, start + 2), slice(0, 10)) for start in (0, 2, 4)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_gradients_none_are_made(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(5)
    assert [
        x.numel()
        for x in operator.forward(
            hidden[None], weight[None], targets[None], IGNORE, False, backend == "triton"
        )
    ] == [1, 0, 0]
    with torch.no_grad():
        assert not cross_entropy(hidden.requires_grad_(), weight, targets, backend=backend).requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_gradient_alone(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(5)
    _, (dhidden, dweight) = results(cross_entropy, (hidden, weight, targets), backend=backend)
    for leaf, expected in ((hidden, dhidden), (weight, dweight)):
        leaf.requires_grad_()
        (grad,) = torch.autograd.grad(1.7 * cross_entropy(hidden, weight, targets, backend=backend), leaf)
        assert error(grad, expected.double()) < 1e-6
        leaf.requires_grad_(False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_a_weight_of_another_dtype(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(9)
    views = hidden.T.contiguous().T, weight.T.contiguous().T, torch.stack([targets, targets], -1)[:, 0]
    assert not any(view.is_contiguous() for view in views)
    loss, grads = results(cross_entropy, (hidden, weight, targets), backend=backend)
    given, given_grads = results(cross_entropy, views, backend=backend)
    assert error(given, loss.double()) < 1e-6
    assert max(error(x, y.double()) for x, y in zip(given_grads, grads, strict=True)) < 1e-6
    loss, grads = results(cross_entropy, (hidden.bfloat16(), weight, targets), backend=backend)
    assert error(loss, given.double()) < LIMITS[torch.bfloat16][0]
    assert [grad.dtype for grad in grads] == [torch.bfloat16, torch.float32]


@pytest.mark.parametrize("backend", BACKENDS)
def test_there_is_no_second_derivative(make: Callable[..., Inputs], backend: str) -> None:
    hidden, weight, targets = make(5)
    (grad,) = torch.autograd.grad(
        cross_entropy(hidden.requires_grad_(), weight, targets, backend=backend), hidden, create_graph=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


@pytest.mark.skipif(DEVICE == "cuda", reason="cuBLAS would have to be told before it starts to work that way")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("small_blocks")
def test_no_unwritten_memory_is_read(
    make: Callable[..., Inputs], request: pytest.FixtureRequest, backend: str
) -> None:
    inputs = make(20)
    clean, clean_grads = results(cross_entropy, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    loss, grads = results(cross_entropy, inputs, backend=backend)
    assert all(map(torch.equal, [loss, *grads], [clean, *clean_grads]))


@pytest.mark.parametrize("target", [-1, 37])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_target_out_of_range_is_not_passed_over(
    make: Callable[..., Inputs], backend: str, target: int
) -> None:
    hidden, weight, targets = make(5)
    targets[0] = target
    if backend == "triton":
        assert cross_entropy(hidden, weight, targets, backend=backend).isnan()
    elif DEVICE == "cpu":
        with pytest.raises(RuntimeError, match="out of bounds"):
            cross_entropy(hidden, weight, targets, backend=backend)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, w, t: (h[None, None], w, t), "hidden"),
        (lambda h, w, t: (h[:, 1:], w, t), "weight"),
        (lambda h, w, t: (h[None], w, t[None]), "weight"),
        (lambda h, w, t: (h, w, t[1:]), "targets"),
        (lambda h, w, t: (h[None].repeat(2, 1, 1), w[None], t[None].repeat(2, 1)), "replicas"),
        (lambda h, w, t: (h, w, t.int()), "int64"),
    ],
)
def test_what_does_not_fit_is_refused(
    make: Callable[..., Inputs], change: Callable[..., Inputs], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cross_entropy(*change(*make(5)))


def test_a_backend_that_does_not_run_is_refused(make: Callable[..., Inputs]) -> None:
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        cross_entropy(*make(5), backend="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float64"):
        cross_entropy(*make(5, dtype=torch.float64), backend="triton")


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Callable[..., Inputs]) -> None:
    inputs = make(9)
    loss, grads = results(
        torch.compile(cross_entropy, fullgraph=True, backend="aot_eager"), inputs, backend="triton"
    )
    expected, expected_grads = results(cross_entropy, inputs, backend="triton")
    assert all(map(torch.equal, [loss, *grads], [expected, *expected_grads]))
    hidden, weight, targets = (x[None] for x in inputs)
    arguments = hidden.requires_grad_(), weight.requires_grad_(), targets, IGNORE, True, True
    torch.library.opcheck(
        torch.ops.linbench.cross_entropy,
        arguments,
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(make: Callable[..., Inputs], replayed: Callable[..., Any]) -> None:
    (hidden, weight, targets), others = make(65), make(65)
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]

    def step() -> tuple[Tensor, ...]:
        loss = cross_entropy(*leaves, targets, backend="triton")
        return loss, *torch.autograd.grad(loss, leaves)

    captured = replayed(step, (*leaves, targets), others)
    assert all(error(x.detach(), y.detach().double()) < 1e-6 for x, y in zip(captured, step(), strict=True))

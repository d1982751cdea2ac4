from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.bench.profile import kinds_of_work
from linbench.kernels.gated_product import scale_rows, silu_gate, silu_product
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, error, results

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("mended")]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
WIDTHS = [1, 21, 42, 63, 65, 100, 172, 176, 512, 1024, 1365]
"""Widths of a result: odd, of powers of two, below and above the tile of a program."""

Make = Callable[..., Tensor]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """x [..., 2 H], from far below to far above zero."""

    def build(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        x = 8 * torch.randn(*shape[:-1], 2 * shape[-1], generator=generator, dtype=torch.float64)
        return x.to(DEVICE, dtype)

    return build


def reference(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x[..., :half] / (1 + torch.exp(-x[..., :half])) * x[..., half:]


def as_before(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


def assert_equals_the_reference(x: Tensor, backend: str, limit: float = 1e-6) -> None:
    given = results(silu_product, [x], backend=backend)
    assert {y.dtype for y in given} == {x.dtype}
    assert_near(given, results(reference, [x.double()]), limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_it_equals_the_reference_at_every_width(
    make: Make, backend: str, width: int, dtype: torch.dtype, limit: float
) -> None:
    assert_equals_the_reference(make(3, 5, width, dtype=dtype), backend, limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 63, 65, 100])
def test_it_equals_the_reference_at_every_number_of_rows(make: Make, backend: str, rows: int) -> None:
    assert_equals_the_reference(make(rows, 42), backend)
    assert_equals_the_reference(make(rows, 1), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lead", [(), (7,), (2, 3, 2, 2)])
def test_any_dimensions_may_come_first(make: Make, backend: str, lead: tuple[int, ...]) -> None:
    assert_equals_the_reference(make(*lead, 21), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_may_lie_apart(make: Make, backend: str) -> None:
    wide = make(4, 5, 60)
    for x in (
        wide[..., 20:70],
        wide.transpose(0, 1),
        wide[:, ::2],
        wide.mT[..., :4],
        wide[:1].expand(3, -1, -1),
    ):
        assert_equals_the_reference(x, backend)
    x = make(4, 21)
    given = torch.autograd.grad(silu_product(x.requires_grad_(), backend=backend).mT[::2].sum(), x)
    assert_near(given, torch.autograd.grad(as_before(x).mT[::2].sum(), x), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_replicas_stack(make: Make, backend: str, dim: int) -> None:
    x = make(3, 5, 21).movedim(0, dim).contiguous()

    def together(x: Tensor) -> Tensor:
        return torch.vmap(lambda one: silu_product(one, backend=backend), in_dims=dim)(x)  # type: ignore[arg-type]

    def alone(x: Tensor) -> Tensor:
        return torch.stack([silu_product(one, backend=backend) for one in x.unbind(dim)])  # type: ignore[arg-type]

    assert_near(results(together, [x]), results(alone, [x]), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(make: Make, request: pytest.FixtureRequest, backend: str) -> None:
    x = make(33, 37)
    clean = results(silu_product, [x], backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(silu_product, [x], backend=backend), clean))


@pytest.mark.skipif(INTERPRETED, reason="torch's form")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_on_a_cpu_it_is_torchs_own_bit_for_bit(make: Make, dtype: torch.dtype) -> None:
    x = make(7, 176, dtype=dtype).cpu()
    assert all(map(torch.equal, results(silu_product, [x]), results(as_before, [x])))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_in_16_bits_triton_is_closer_than_torch(make: Make) -> None:
    x = make(50, 176, dtype=torch.bfloat16)
    exact = results(reference, [x.double()])
    for given, torchs, expected in zip(
        results(silu_product, [x], backend="triton"), results(as_before, [x]), exact, strict=True
    ):
        assert error(given, expected) < error(torchs, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # numpy's, in the interpreter
@pytest.mark.parametrize("gate", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_gates_that_are_shut_or_open_stay_finite(backend: str, gate: float) -> None:
    x = torch.tensor([gate, 3.0], device=DEVICE)
    y, dx = results(silu_product, [x], backend=backend)
    assert_near([y + 1, dx + 1], [1 + each for each in results(as_before, [x.double()])], 1e-6)


@pytest.mark.parametrize("shape", [(0, 8), (4, 0, 8)])
def test_nothing_gives_nothing(shape: tuple[int, ...]) -> None:
    x = torch.empty(*shape, device=DEVICE)
    assert [tuple(each.shape) for each in results(silu_product, [x])] == [(*shape[:-1], 4), shape]


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Make) -> None:
    x = make(5, 21)
    compiled = torch.compile(silu_product, fullgraph=True, backend="aot_eager")
    given, expected = (results(function, [x], backend="triton") for function in (compiled, silu_product))
    assert all(map(torch.equal, given, expected))
    torch.library.opcheck(torch.ops.linbench.silu_product, (x.requires_grad_(),))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(make: Make, replayed: Callable[..., list[Tensor]]) -> None:
    x, other = make(65, 48).requires_grad_(), make(65, 48)

    def step() -> tuple[Tensor, ...]:
        y = silu_product(x, backend="triton")
        return y, *torch.autograd.grad(y.square().sum(), x)

    captured = replayed(step, [x], [other])
    assert all(map(torch.equal, captured, step()))


@pytest.mark.gpu
def test_offsets_beyond_32_bits() -> None:
    """Rows whose numbers begin beyond the 2^32nd, in 8.6 GB of bfloat16, which lie together in one launch."""
    rows, width = (1 << 24) + 3, 129
    x = torch.zeros(rows, 2 * width, dtype=torch.bfloat16, device=DEVICE)
    x[-3:] = torch.randn(3, 2 * width, device=DEVICE)
    with torch.no_grad():
        assert_near([silu_product(x)[-3:]], [reference(x[-3:].double())], 4e-3)


def halves(x: Tensor) -> list[Tensor]:
    """Values and gates [..., H] of x [..., 2 H]."""
    gate, value = x.chunk(2, dim=-1)
    return [value, gate]


def gated(value: Tensor, gate: Tensor) -> Tensor:
    return gate / (1 + torch.exp(-gate)) * value


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_gates_apart_from_their_values_equal_the_reference(
    make: Make, backend: str, width: int, dtype: torch.dtype, limit: float
) -> None:
    inputs = halves(make(3, 5, width, dtype=dtype))
    given = results(silu_gate, inputs, backend=backend)
    assert {y.dtype for y in given} == {dtype}
    if backend == "torch" and dtype == torch.bfloat16:
        limit *= 2  # torch rounds silu(gate), too
    assert_near(given, results(gated, [x.double() for x in inputs]), limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 63, 65, 100])
def test_gates_apart_are_those_beside_their_values(make: Make, backend: str, rows: int) -> None:
    x = make(rows, 42)
    y, dvalue, dgate = results(silu_gate, halves(x), backend=backend)
    assert_near([y, torch.cat([dgate, dvalue], dim=-1)], results(silu_product, [x], backend=backend), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_apart_stack(make: Make, backend: str) -> None:
    inputs = halves(make(3, 5, 2, 21))

    def together(value: Tensor, gate: Tensor) -> Tensor:
        return torch.vmap(lambda *one: silu_gate(*one, backend=backend))(value, gate)  # type: ignore[arg-type]

    assert_near(results(together, inputs), results(gated, inputs), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_apart_read_no_unwritten_memory(
    make: Make, request: pytest.FixtureRequest, backend: str
) -> None:
    inputs = halves(make(33, 37))
    clean = results(silu_gate, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(silu_gate, inputs, backend=backend), clean))


def test_gates_that_do_not_fit_their_values_are_refused(make: Make) -> None:
    value, gate = halves(make(3, 5, 8))
    for wrong in (gate[0], gate[..., :4], gate.double()):
        with pytest.raises(ValueError, match=r"value and gate have one shape"):
            silu_gate(value, wrong)


def rows_and_numbers(make: Make, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """x [..., D] and a number for each of its rows, in float32."""
    given = make(*shape, dtype=dtype)
    return [given[..., : shape[-1]], given[..., -1].float()]


def scaled(x: Tensor, by: Tensor) -> Tensor:
    return x * by[..., None]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_rows_times_numbers_equal_the_reference_at_every_width(
    make: Make, backend: str, width: int, dtype: torch.dtype, limit: float
) -> None:
    inputs = rows_and_numbers(make, 3, 5, width, dtype=dtype)
    given = results(scale_rows, inputs, backend=backend)
    assert [y.dtype for y in given] == [dtype, dtype, torch.float32]
    assert_near(given, results(scaled, [x.double() for x in inputs]), limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 63, 65, 100])
@pytest.mark.parametrize("width", [1, 42, 64])
def test_rows_times_numbers_equal_the_reference_at_every_number_of_rows(
    make: Make, backend: str, rows: int, width: int
) -> None:
    inputs = rows_and_numbers(make, rows, width)
    assert_near(results(scale_rows, inputs, backend=backend), results(scaled, inputs), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_times_numbers_stack(make: Make, backend: str) -> None:
    inputs = rows_and_numbers(make, 3, 5, 2, 21)

    def together(x: Tensor, by: Tensor) -> Tensor:
        return torch.vmap(lambda *one: scale_rows(*one, backend=backend))(x, by)  # type: ignore[arg-type]

    assert_near(results(together, inputs), results(scaled, inputs), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_times_numbers_read_no_unwritten_memory(
    make: Make, request: pytest.FixtureRequest, backend: str
) -> None:
    inputs = rows_and_numbers(make, 33, 37)
    clean = results(scale_rows, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(scale_rows, inputs, backend=backend), clean))


@pytest.mark.skipif(INTERPRETED, reason="torch's form")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_on_a_cpu_rows_times_numbers_are_torchs_own_bit_for_bit(make: Make, dtype: torch.dtype) -> None:
    inputs = [x.cpu() for x in rows_and_numbers(make, 7, 5, 64, dtype=dtype)]
    wanted = results(lambda x, by: (by[..., None] * x).to(x.dtype), inputs)
    assert all(map(torch.equal, results(scale_rows, inputs), wanted))


def test_numbers_that_do_not_fit_the_rows_are_refused(make: Make) -> None:
    x, by = rows_and_numbers(make, 3, 5, 8)
    for wrong in (by[0], by[..., None], by[:, :4]):
        with pytest.raises(ValueError, match=r"x \[\.\.\., D\] and by \[\.\.\.\]"):
            scale_rows(x, wrong)


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize(
    ("door", "inputs"),
    [(scale_rows, lambda make: rows_and_numbers(make, 5, 21)), (silu_gate, lambda make: halves(make(5, 21)))],
)
def test_operators_of_two_tensors_compile_whole(
    make: Make, door: Callable[..., Tensor], inputs: Callable[[Make], list[Tensor]]
) -> None:
    leaves = inputs(make)
    compiled = torch.compile(door, fullgraph=True, backend="aot_eager")
    given, expected = (results(function, leaves, backend="triton") for function in (compiled, door))
    assert all(map(torch.equal, given, expected))
    torch.library.opcheck(
        getattr(torch.ops.linbench, door.__name__), tuple(x.contiguous().requires_grad_() for x in leaves)
    )


@pytest.mark.parametrize(
    "event",
    [
        "linbench::silu_product",
        "linbench::silu_product_backward",
        "linbench::scale_rows",
        "linbench::silu_gate",
    ],
)
def test_a_profile_does_not_take_it_for_one_of_torchs_gates(event: str) -> None:
    kinds = [kind for kind, words in kinds_of_work() if any(word in event for word in words)]
    assert kinds[0] == "gated product"  # the first counts


def test_what_has_no_halves_is_refused(make: Make) -> None:
    for wrong in (torch.ones(()), torch.ones(3, 5), torch.ones(3, 0)):
        with pytest.raises(ValueError, match=r"x must be \[\.\.\., 2 H\]"):
            silu_product(wrong)
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        silu_product(make(5, 3), backend="fast")  # type: ignore[arg-type]

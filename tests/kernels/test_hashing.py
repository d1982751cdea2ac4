from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from linbench.kernels.hashing import bits, mixed, permuted
from linbench.kernels.hashing.cases import EDGES, mix, permute
from linbench.kernels.hashing.cases import draw as draw_one
from linbench.kernels.operators import INTERPRETED, runs_triton

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
SIZES = [2, 3, 5, 65, 127, 1000, 4095, 4096, 2**20 + 7, 2**30]


def numbers(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw numbers of 64 bits."""
    return torch.randint(-(2**63), 2**63 - 1, shape, generator=generator).to(DEVICE)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("plus", [0, 5, 2**40 + 1, 2**63 - 1])
def test_mixing_is_that_of_whole_numbers(generator: torch.Generator, backend: str, plus: int) -> None:
    x = torch.cat([torch.tensor(EDGES, device=DEVICE), numbers(generator, 50)])
    assert mixed(x, plus, backend=backend).tolist() == [mix(each + plus) for each in x.tolist()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_bits_are_those_of_whole_numbers(generator: torch.Generator, backend: str) -> None:
    key, counter = (
        numbers(generator, 3),
        torch.cat([torch.tensor(EDGES, device=DEVICE), numbers(generator, 5)]),
    )
    wanted = [[draw_one(k, c) for c in counter.tolist()] for k in key.tolist()]
    assert bits(key, counter, backend=backend).tolist() == wanted
    assert bits(key, counter.expand(3, -1), backend=backend).tolist() == wanted
    assert bits(key, counter.repeat(3, 1).T.contiguous().T, backend=backend).tolist() == wanted
    assert bits(key, 7, backend=backend).tolist() == [
        [draw_one(k, c) for c in range(7)] for k in key.tolist()
    ]
    assert bits(key[:1], counter[:, None], backend=backend).tolist() == [[bit] for bit in wanted[0]]
    assert bits(key.repeat_interleave(2)[::2], counter, backend=backend).tolist() == wanted


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_permutation_is_that_of_whole_numbers(generator: torch.Generator, backend: str, size: int) -> None:
    key = numbers(generator, 4)
    x = torch.arange(min(size, 20), device=DEVICE)
    wanted = [[permute(k, at, size) for at in x.tolist()] for k in key.tolist()]
    assert permuted(key, x, size=size, backend=backend).tolist() == wanted
    assert permuted(key, x.flip(0).expand(4, -1), size=size, backend=backend).flip(1).tolist() == wanted
    if size <= 4096:
        every = permuted(key, torch.arange(size, device=DEVICE), size=size, backend=backend)
        assert torch.equal(every.sort(dim=1).values, torch.arange(size, device=DEVICE).expand(4, -1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 1023), (1, 1025), (1024, 1), (1025, 1), (3, 700), (700, 3), (5, 2048)]
)
def test_every_place_is_written_whatever_the_shape(
    generator: torch.Generator, backend: str, shape: tuple[int, int]
) -> None:
    rows, columns = shape
    key, x = numbers(generator, rows), torch.arange(columns, device=DEVICE)
    size = max(2, columns)
    drawn, images = bits(key, columns, backend=backend), permuted(key, x, size=size, backend=backend)
    assert drawn.shape == images.shape == shape
    assert torch.equal(drawn, bits(key, columns, backend="torch"))
    assert torch.equal(bits(key, drawn, backend=backend), bits(key, drawn, backend="torch"))
    assert torch.equal(images, permuted(key, x, size=size, backend="torch"))
    assert torch.equal(mixed(drawn, 3, backend=backend), mixed(drawn, 3, backend="torch"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_nothing_comes_nothing(generator: torch.Generator, backend: str) -> None:
    key, nothing = numbers(generator, 3), torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert mixed(nothing, 1, backend=backend).shape == (0,)
    assert bits(key, 0, backend=backend).shape == bits(key, nothing, backend=backend).shape == (3, 0)
    assert permuted(key, nothing, size=100, backend=backend).shape == (3, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_are_known_beforehand(generator: torch.Generator, backend: str) -> None:
    """A captured draw needs to know its shapes."""

    def draws(key: Tensor, x: Tensor) -> list[Tensor]:
        return [
            mixed(key, 5, backend=backend),
            mixed(key.sum(), backend=backend),
            bits(key, 6, backend=backend),
            bits(key, x, backend=backend),
            bits(key[:1], key[:, None], backend=backend),
            permuted(key, x, size=4095, backend=backend),
            permuted(key, x.expand(3, -1), size=4095, backend=backend),
        ]

    key, x = numbers(generator, 3), torch.arange(9, device=DEVICE)
    real = draws(key, x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = draws(mode.from_tensor(key), mode.from_tensor(x))
    assert [(y.shape, y.dtype, y.device) for y in fake] == [(y.shape, y.dtype, y.device) for y in real]


def test_a_backend_that_is_not_there_is_refused(generator: torch.Generator) -> None:
    key = numbers(generator, 3)
    draws: list[Callable[..., Tensor]] = [
        lambda **o: mixed(key, **o),
        lambda **o: bits(key, 4, **o),
        lambda **o: permuted(key, key[:0], size=4, **o),
    ]
    for draw in draws:
        with pytest.raises(ValueError, match="one of auto, torch, triton"):
            draw(backend="fast")


@pytest.mark.gpu
def test_a_cuda_graph_replays_it(generator: torch.Generator, replayed: Callable[..., Any]) -> None:
    (key, x), others = ((numbers(generator, 500), numbers(generator, 500, 40) % 4095) for _ in range(2))

    def draw() -> list[Tensor]:
        return [mixed(key, 7), bits(key, 100), bits(key, x), permuted(key, x, size=4095)]

    captured = replayed(draw, (key, x), others)
    assert all(map(torch.equal, captured, draw()))

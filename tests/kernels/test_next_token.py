"""One more token in one launch: what turning it, writing it into the cache and reading the cache give."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY
from linbench.kernels.attention.caches import read_next, reads_next
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.models.attention import Attention
from linbench.models.fox import FoX
from linbench.models.gated_attention import GatedAttention
from tests.helpers.gradients import error
from tests.helpers.models import build_mixer
from tests.helpers.next_token import DEVICE, Next, held_to_the_reference, next_token

DTYPES = [torch.float32, torch.bfloat16]

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended", "poisoned_memory"),
]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Next]:
    return partial(next_token, generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [0, 8])
@pytest.mark.parametrize(
    ("seen", "places", "shape"),
    [
        ((0,), 1, (1, 8, 5)),
        ((0, 3, 62), 63, (2, 16, 24)),
        ((64, 0), 65, (3, 64, 64)),
        ((5, 130, 1499), 1500, (2, 33, 16)),
        ((1000,), 1500, (1, 128, 64)),
    ],
)
def test_places_so_far(
    make: Callable[..., Next],
    seen: tuple[int, ...],
    places: int,
    shape: tuple[int, ...],
    turned: int,
    dtype: torch.dtype,
) -> None:
    held_to_the_reference(make(seen, places, *shape, dtype=dtype), turned=turned)


@pytest.mark.parametrize("places", [1, 20, 300])
def test_the_oldest_give_way(make: Callable[..., Next], places: int) -> None:
    """The place of the oldest token is written over once all places are used, and nobody sees it again."""
    token = make((places - 1, places, places + 1, 3 * places + 7), places, 2, 16, 16)
    held_to_the_reference(token, turned=16, slopes=torch.tensor([0.5, 0.01], device=DEVICE))


@pytest.mark.parametrize(("key_heads", "turned"), [(1, 6), (2, 16)])
def test_fewer_heads_of_keys(make: Callable[..., Next], key_heads: int, turned: int) -> None:
    held_to_the_reference(make((7, 299), 300, 4, 16, 16, key_heads=key_heads), turned=turned)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("key_dim", "value_dim"), [(16, 100), (200, 256)])
def test_wide_heads(make: Callable[..., Next], key_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    held_to_the_reference(make((600,), 601, 2, key_dim, value_dim, dtype=dtype), turned=key_dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("places", [40, 700])
def test_gates_slopes_and_scales_of_heads(
    make: Callable[..., Next], generator: torch.Generator, places: int, dtype: torch.dtype
) -> None:
    token = make((places - 1, 5, 2 * places), places, 3, 16, 16, dtype=dtype)
    gate = -torch.rand(3, 1, 3, generator=generator).to(DEVICE)
    left = -torch.rand(3, places, 3, generator=generator).mul(5).to(DEVICE)
    left = left.masked_fill((token.there == EMPTY)[..., None], float("nan"))
    slopes = torch.tensor([0.5, 0.1, 0.0], device=DEVICE)
    held_to_the_reference(token, gates=(gate, left))
    held_to_the_reference(token, gates=(gate, left), slopes=slopes, turned=10)
    held_to_the_reference(token, scale=torch.tensor([0.3, 1.0, 2.0], device=DEVICE))


def test_it_is_there_for_one_token_without_gradient(make: Callable[..., Next]) -> None:
    token = make((3, 4), 20, 2, 16, 16)

    def taken(x: Tensor = token.q, keys: Tensor = token.keys, values: Tensor = token.values) -> bool:
        return reads_next(keys, values, token.seen, x, biased=True)

    assert taken()
    assert not taken(token.q.clone().requires_grad_())
    assert not taken(token.q.expand(-1, 2, -1, -1))
    assert not taken(keys=token.keys.mT.contiguous().mT)
    assert not taken(token.q.double())
    assert not taken(keys=token.keys.new_empty(1, 1, 4, 300))
    traced: list[bool] = []
    torch.vmap(lambda q: traced.append(taken(q)) or q)(token.q[None])
    assert traced == [False]


@pytest.mark.skipif(INTERPRETED, reason="a capture needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("places", [70, 3000])
def test_it_is_captured(make: Callable[..., Next], replayed: Callable[..., Any], places: int) -> None:
    token, other = (make((places - 1, 5), places, 3, 16, 16) for _ in range(2))
    expected = read_next(*other.copy(), turned=16)[0]
    captured = replayed(lambda: (read_next(*token, turned=16)[0],), token, other)
    assert torch.equal(captured[0], expected)


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (Attention, {}),
        (Attention, {"window": 5, "positions": "alibi"}),
        (Attention, {"kv_heads": 1, "rope_fraction": 0.5, "qk_norm": "l2", "conv": 4}),
        (GatedAttention, {}),
        (FoX, {}),
        (FoX, {"window": 5, "positions": "rope"}),
    ],
)
def test_layers_decode_as_they_see_whole_sequences(
    cls: type[Attention], settings: dict[str, Any], generator: torch.Generator
) -> None:
    mixer = build_mixer(cls, heads=2, silent=False, **settings).to(DEVICE, torch.float32)
    assert mixer.is_plain
    x = torch.randn(3, 12, mixer.layer.d_model, generator=generator).to(DEVICE)
    with torch.no_grad():
        expected, whole = mixer(x).y, mixer.prefill(x, capacity=12).state
        state, outputs = mixer.prefill(x[:, :3], capacity=12).state, []
        for t in range(3, 12):
            assert reads_next(state.keys, state.values, state.seen, x[:, t : t + 1], biased=True)
            y, _, _ = mixer.decode(x[:, t : t + 1], state)
            # of the same state once more, as a benchmark asks
            again, state, _ = mixer.decode(x[:, t : t + 1], state)
            assert torch.equal(y, again)
            outputs.append(y)
    assert error(torch.cat(outputs, dim=1), expected[:, 3:]) < 1e-5
    for found, wanted in zip(state, whole, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

"""No sequences give no outputs; no tokens, no heads and no numbers are refused in a sentence."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import attention
from linbench.kernels.cross_entropy import cross_entropy
from linbench.kernels.least_squares import least_squares
from linbench.kernels.matrix_state import Add, Delta, LowRank, matrix_state
from linbench.kernels.momentum_delta import momentum_delta
from linbench.kernels.norms import layer_norm, rms_norm
from linbench.kernels.scan import scan
from linbench.kernels.selective_scan import selective_scan
from linbench.kernels.short_convolution import short_convolution
from linbench.kernels.suffix_match import suffix_match
from linbench.kernels.token_shift import token_shift
from linbench.kernels.two_sided import two_sided


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _matrix(
    batch: int, length: int, heads: int, backend: str, decay: str, update: str, steps: int
) -> tuple[Tensor, list[Tensor]]:
    q, k, v = (drawn(batch, many * length, heads, 8) for many in (1, steps, steps))
    gate = {
        "none": None,
        "head": -torch.rand(batch, length, heads),
        "row": -torch.rand(batch, length, heads, 8),
    }[decay]
    rules = {"add": Add(), "delta": Delta(torch.rand(batch, steps * length, heads)), "low": LowRank(k, k)}
    o, state = matrix_state(q, k, v, log_decay=gate, update=rules[update], steps=steps, backend=backend)  # type: ignore[arg-type]
    assert (o.shape, state.shape) == ((batch, length, heads, 8), (batch, heads, 8, 8))
    return o, [q, k, v]


@pytest.mark.parametrize("backend", ["auto", "reference", "chunkwise", "scan"])
@pytest.mark.parametrize("decay", ["none", "head", "row"])
@pytest.mark.parametrize(("update", "steps"), [("add", 1), ("delta", 2), ("low", 1)])
@pytest.mark.parametrize("length", [1, 40])
def test_no_sequences_leave_no_memory(backend: str, decay: str, update: str, steps: int, length: int) -> None:
    o, leaves = _matrix(0, length, 2, backend, decay, update, steps)
    o.sum().backward()
    assert [leaf.grad.shape for leaf in leaves if leaf.grad is not None] == [leaf.shape for leaf in leaves]


@pytest.mark.parametrize("backend", ["auto", "reference", "chunkwise", "scan"])
@pytest.mark.parametrize(("length", "heads"), [(0, 2), (4, 0)])
def test_no_tokens_and_no_heads_are_refused(backend: str, length: int, heads: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        _matrix(2, length, heads, backend, "head", "delta", 1)


def test_keys_of_no_numbers_are_refused() -> None:
    q, v = torch.ones(1, 4, 2, 0), torch.ones(1, 4, 2, 8)
    for door in (matrix_state, attention):
        with pytest.raises(ValueError, match="at least one number"):
            door(q, q, v)  # type: ignore[operator]


def test_a_bonus_for_no_sequences() -> None:
    q = torch.ones(0, 4, 2, 8)
    assert matrix_state(q, q, q, log_decay=-q, read="before", bonus=torch.ones(2, 8))[0].shape == q.shape


DOORS: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": lambda x: attention(x[:, :, None], x[:, :, None], x[:, :, None])[:, :, 0],
    "attention, reference": lambda x: attention(
        x[:, :, None], x[:, :, None], x[:, :, None], backend="reference"
    )[:, :, 0],
    "attention, window": lambda x: attention(
        x[:, :, None], x[:, :, None], x[:, :, None], window=2, slopes=torch.ones(1)
    )[:, :, 0],
    "two_sided": lambda x: two_sided(
        *[x[:, :, None]] * 3, key_log_decay=-x[:, :, None], value_log_decay=-x[:, :, None]
    )[0][:, :, 0],
    "least_squares": lambda x: least_squares(*[x[:, :, None]] * 3, ridge=1.0)[0][:, :, 0],
    "momentum_delta": lambda x: momentum_delta(
        *[x[:, :, None]] * 3, **dict.fromkeys(("log_decay", "log_momentum", "step", "share"), -x[:, :, :1])
    )[0][:, :, 0],
    "scan": lambda x: scan(torch.ones_like(x), x)[0],
    "selective_scan": lambda x: selective_scan(x, x, -torch.ones(8, 4), x[..., :4], x[..., :4])[0],
    "short_convolution": lambda x: short_convolution(x, torch.ones(4, 8))[0][0],
    "rms_norm": lambda x: rms_norm(x, torch.ones(8)),
    "layer_norm": lambda x: layer_norm(x[:, :, None], torch.ones(1, 8))[:, :, 0],
    "suffix_match": lambda x: suffix_match(*[x[:, :, None]] * 3)[0][:, :, 0],
    "token_shift": lambda x: token_shift(x, torch.ones(1, 8))[0],
}


@pytest.mark.parametrize("name", DOORS)
def test_every_other_door_makes_nothing_of_nothing(name: str) -> None:
    x = drawn(0, 4, 8)
    y = DOORS[name](x)
    assert y.shape == x.shape
    y.sum().backward()
    assert x.grad is not None


def test_the_loss_of_nothing_is_no_number() -> None:
    assert cross_entropy(torch.ones(0, 8), torch.ones(5, 8), torch.zeros(0, dtype=torch.int64)).isnan()

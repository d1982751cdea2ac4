import pytest
import torch
from torch import Tensor

from linbench.models.blocks.prefix_scan import CHUNK, NARROW, running_maximum, running_sum

LENGTHS = [1, 65, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7]


CHANNELS = pytest.mark.parametrize("channels", [3, NARROW + 1])


def drawn(length: int, channels: int = 3) -> Tensor:
    return torch.randn(
        2, length, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(length)
    )


@CHANNELS
@pytest.mark.parametrize("length", LENGTHS)
def test_a_running_maximum_is_torchs_bit_for_bit(length: int, channels: int) -> None:
    x = drawn(length, channels)
    x[:, 0] = float("-inf")
    assert torch.equal(running_maximum(x), x.cummax(dim=1).values)


@CHANNELS
@pytest.mark.parametrize("length", LENGTHS)
def test_a_running_sum_is_torchs_and_bit_for_bit_up_to_a_chunk(length: int, channels: int) -> None:
    x = drawn(length, channels)
    torch.testing.assert_close(running_sum(x), x.cumsum(dim=1), rtol=0, atol=0 if length <= CHUNK else 1e-12)


@CHANNELS
@pytest.mark.parametrize("running", [running_sum, running_maximum])
def test_replicas_stack(running: object, channels: int) -> None:
    assert callable(running)
    x = torch.stack([drawn(CHUNK + 9, channels), drawn(CHUNK + 9, channels) + 1])
    assert torch.equal(torch.vmap(running)(x), torch.stack([running(one) for one in x]))

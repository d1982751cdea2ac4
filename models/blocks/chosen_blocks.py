"""Settings and counts of attention to blocks of tokens that a query chooses."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from linbench.models.blocks.attention_settings import AttentionSettings


class BlockSettings(AttentionSettings):
    """Settings of attention to chosen blocks. Published: rotary positions, nothing around the heads."""

    positions: Literal["rope", "none"] = Field("rope", description="how a token knows where it stands")
    window: None = Field(None, description="all keys are kept")
    block: int = Field(ge=1, description="tokens in a block")
    blocks: int = Field(ge=1, description="blocks that a query reads, its own included")


def mean_over(seq_len: int, count: Callable[[int], float]) -> float:
    """Return the mean of what is counted for each position of a sequence."""
    return sum(map(count, range(seq_len))) / seq_len


def keys_read(position: int, settings: BlockSettings) -> int:
    """Return how many keys the token at a position reads in its own block and the others it chooses."""
    before, own = divmod(position, settings.block)
    return min(before, settings.blocks - 1) * settings.block + own + 1

"""Blocks of keys by position: their means, and attention within those that a query has chosen."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.calls import Heads
from linbench.kernels.attention.positions import EMPTY


def require_blocks(block: int, blocks: int, *, least: int) -> None:
    """Require a length of blocks, and as many that a query reads as its own rules need.

    Raises ValueError: one of them is too small.
    """
    if block < 1 or blocks < least:
        raise ValueError(f"block is at least 1 and blocks at least {least}, not {block} and {blocks}")


def by_position(heads: Heads) -> Heads:
    """Return operands whose key at place p is that of position p; where no key is, there are zeros.

    There are as many places as before, which positions stay below. A GPU is not waited for.
    """
    if heads.in_order:
        return heads
    places = heads.k.shape[2]
    at = heads.key_positions
    place = at.masked_fill(at == EMPTY, places).clamp(0, places)[..., None]

    def laid(x: Tensor) -> Tensor:
        """Write every row to a place of its own, and those without a key to one that is cut off."""
        to = x.new_zeros(*x.shape[:2], places + 1, x.shape[3])
        return to.scatter(2, place.expand_as(x), x)[:, :, :places]

    return heads._replace(k=laid(heads.k), v=laid(heads.v))


def block_means(x: Tensor, block: int) -> Tensor:
    """Return the means of x [., ., S, N] over whole blocks [., ., ceil(S / block), N].

    That of a last block with fewer places is no mean.
    """
    count = -(-x.shape[2] // block)
    whole = F.pad(x, (0, 0, 0, count * block - x.shape[2]))
    return whole.view(*x.shape[:2], count, block, x.shape[3]).sum(dim=3) / block


def best_blocks(scores: Tensor, count: int) -> Tensor:
    """Return a mask of the `count` blocks with the highest scores [..., M]; of equal ones the first."""
    best = scores.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)


def attend_within(
    q: Tensor, query_positions: Tensor, k: Tensor, v: Tensor, chosen: Tensor, block: int
) -> Tensor:
    """Return causal attention to the keys in chosen blocks, of operands as `by_position` has them.

    Args:
        q: [B, H, T, K].
        query_positions: [B, 1, T].
        k, v: [B, H, S, K or V].
        chosen: mask of the blocks that each query reads [B, H, T, M].
        block: positions in a block.
    """
    places = k.shape[2]
    read = chosen[..., None].expand(*chosen.shape, block).flatten(-2)[..., :places]
    seen = read & (torch.arange(places, device=k.device) <= query_positions[..., None])
    return (q @ k.mT).masked_fill(~seen, float("-inf")).softmax(-1) @ v


def keys_in_order(heads: Heads, row: int) -> tuple[Tensor, Tensor]:
    """Return the keys and values of one sequence [H, S', K or V] in the order of their positions."""
    at = heads.key_positions[row, 0]
    order = at.argsort()
    order = order[at[order] != EMPTY]
    return heads.k[row][:, order], heads.v[row][:, order]


def read_blocks(q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, block: int, position: int) -> Tensor:
    """Return what one query q [K] reads of k and v [S, K or V] in blocks of these numbers: [V]."""
    tokens = (chosen[:, None] * block + torch.arange(block, device=chosen.device)).flatten()
    tokens = tokens[tokens <= position]
    weights = torch.einsum("k,sk->s", q, k[tokens]).softmax(dim=0)
    return torch.einsum("s,sv->v", weights, v[tokens])

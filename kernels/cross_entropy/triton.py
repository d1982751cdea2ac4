"""Loss and gradient of a block of logits on a GPU: read once, the gradient written in its place."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _block(
    logits, targets, share, losses, count, rows, stride, ignore,
    V: tl.constexpr, ROWS: tl.constexpr, BV: tl.constexpr, GRADIENTS: tl.constexpr,
):  # fmt: skip
    """Compute losses, and with GRADIENTS the gradient in place of the logits. Grid (count / ROWS).

    Takes logits [count, V], `rows` of each replica; targets and losses lie `stride` apart from replica to
    replica.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    here = row < count
    replica = row // rows
    place = replica * stride + row % rows
    target = tl.load(targets + place, mask=here, other=0)
    due = here & (target != ignore)
    column = tl.arange(0, BV)[None, :]
    logits += row * V
    top, total, chosen = (
        tl.full([ROWS, 1], float("-inf"), tl.float32),
        tl.zeros([ROWS, 1], tl.float32),
        tl.zeros([ROWS, 1], tl.float32),
    )
    x = tl.zeros([ROWS, BV], tl.float32)
    for start in range(0, V, BV):
        x = tl.load(logits + start + column, mask=here & (start + column < V), other=0.0).to(tl.float32)
        x = tl.where(start + column < V, x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=1, keep_dims=True)
        chosen += tl.sum(tl.where(start + column == target, x, 0.0), axis=1, keep_dims=True)
        top = higher
    loss = tl.where(due, tl.log(total) + top - chosen, 0.0)
    loss = tl.where(due & ((target < 0) | (target >= V)), float("nan"), loss)
    tl.store(losses + place, loss, mask=here)
    if GRADIENTS:
        scale = tl.where(due, tl.load(share + replica, mask=here, other=0.0), 0.0)
        for start in range(0, V, BV):
            if V > BV:
                x = tl.load(logits + start + column, mask=here & (start + column < V), other=0.0).to(
                    tl.float32
                )
            slope = scale * (tl.exp(x - top) / total - tl.where(start + column == target, 1.0, 0.0))
            tl.store(
                logits + start + column, slope.to(logits.dtype.element_ty), mask=here & (start + column < V)
            )


def launch(vocabulary: int) -> tuple[int, int, int]:
    """Return rows and columns of a tile, and warps.

    A tile holds a whole row if it fits the registers (16384 logits), else 4096 columns at a time; or several
    short rows.
    """
    columns = 1 << (vocabulary - 1).bit_length()
    columns = columns if columns <= 16384 else 4096
    rows = max(1, 2048 // columns)
    return rows, columns, max(4, min(16, rows * columns // 1024))


def block(
    logits: Tensor, targets: Tensor, ignore: int, share: Tensor, losses: Tensor, *, gradients: bool
) -> None:
    """Write losses and gradients, as `linbench.kernels.cross_entropy.eager.block`."""
    replicas, rows, vocabulary = logits.shape
    tile_rows, columns, warps = launch(vocabulary)
    _block[(-(-replicas * rows // tile_rows),)](
        logits, targets, share, losses, replicas * rows, rows, targets.stride(0), ignore,
        V=vocabulary, ROWS=tile_rows, BV=columns, GRADIENTS=gradients, num_warps=warps,
    )  # fmt: skip

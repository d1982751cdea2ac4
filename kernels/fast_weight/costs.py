"""Operations of a fast weight, token by token."""

from collections.abc import Sequence

from linbench.kernels.fast_weight.description import Step


def flops_per_token(
    shapes: Sequence[tuple[int, int]], step: Step, *, heads: int, length: int, scaled: bool = False
) -> float:
    """Return the floating-point operations of the recurrence itself, forward, per token of a sequence.

    A multiply-add counts as two, and only products of matrices and what is done to whole matrices count.

    Args:
        shapes: rows and columns of every map's matrix.
        step: the step of a mini-batch.
        heads: number of heads.
        length: tokens of the sequence, which decides how many of its mini-batches end.
        scaled: whether tokens read changes times a factor.
    """
    each = sum(rows * columns for rows, columns in shapes)
    hidden = shapes[-1][0] * shapes[-1][1] if len(shapes) > 1 else 0  # slopes of the hidden layer
    token = 2 * each + 2 * each + 2 * hidden + 2 * each  # key, outer product, query
    token += 2 * each  # rate, and what is gathered
    if step.reads == "own":
        token += (1 + scaled) * each + 2 * step.momentum * each + 3 * step.decay * each
    end = sum(_end(*shape, step) for shape in shapes)
    return heads * (token + end * (length // step.size) / length)


def _end(rows: int, columns: int, step: Step) -> int:
    """Return the operations at the end of a mini-batch for a matrix."""
    small, large = sorted((rows, columns))
    newton_schulz = step.orthogonal * (4 * small**2 * large + 2 * small**3 + 3 * small**2 + 2 * small * large)
    gates = 2 * step.momentum + step.decay if step.reads == "before" else 0
    return newton_schulz + (2 + gates + 3 * step.keeps_norms + 3 * bool(step.orthogonal)) * rows * columns

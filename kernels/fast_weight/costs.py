"""Operations of a fast weight, token by token."""

from collections.abc import Sequence

from linbench.kernels.fast_weight.description import Step


def flops_per_token(
    shapes: Sequence[tuple[int, int]],
    step: Step,
    *,
    heads: int,
    length: int,
    scaled: bool = False,
    sized: bool = False,
) -> float:
    """Return the floating-point operations of the recurrence itself, forward, per token of a sequence.

    A multiply-add counts as two, and only products of matrices and what is done to whole matrices count.

    Args:
        shapes: rows and columns of every map's matrix.
        step: the step of a mini-batch.
        heads: number of heads.
        length: tokens of the sequence, which decides how many of its mini-batches end.
        scaled: whether tokens read changes times a factor.
        sized: whether every token's change has a factor, its step size.
    """
    each = sum(rows * columns for rows, columns in shapes)
    hidden = shapes[-1][0] * shapes[-1][1] if len(shapes) > 1 else 0  # slopes of the hidden layer
    token: float = step.window * (2 * each + 2 * each + 2 * hidden)  # keys, and outer products
    token += 2 * each + 2 * each  # query; rate, and what is gathered
    if step.reads == "own":
        token += (1 + scaled + sized) * each + 2 * step.momentum * each + 3 * step.decay * each
        token += sum(_newton_schulz(*shape, step) for shape in shapes)
    end = sum(_end(*shape, step) for shape in shapes)
    return heads * (token + end * (length // step.size) / length)


def _end(rows: int, columns: int, step: Step) -> int:
    """Return the operations at the end of a mini-batch for a matrix."""
    each = (2 + 3 * step.keeps_norms) * rows * columns
    if step.reads == "own":
        return each
    return each + (2 * step.momentum + step.decay) * rows * columns + _newton_schulz(rows, columns, step)


def _newton_schulz(rows: int, columns: int, step: Step) -> int:
    """Return the operations that make a matrix orthogonal."""
    small, large = sorted((rows, columns))
    each = 4 * small**2 * large + 2 * small**3 + 3 * small**2 + 2 * small * large
    return step.orthogonal * each + 3 * bool(step.orthogonal) * rows * columns

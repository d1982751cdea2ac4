"""The longest match by comparing every query with every earlier key, all pairs of tokens at once.

With r_tj the number of symbols up to q_t that equal those up to k_j, r_tj is zero or 1 + r_{t-1,j-1}. Runs
of up to 2 w symbols are made of two of up to w, so that there are log2 T steps and none goes through tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.suffix_match.copying import MISMATCH, NOTHING, SLOPE, WINDOW, in_parts

PAIRS = {"cpu": 1 << 18, "cuda": 1 << 23}
"""Pairs of tokens that are compared at a time, by device.

A gradient keeps up to twenty numbers for each. On a CPU these stay in its cache, which halves the time of a
gradient; on a GPU the number bounds memory, and is chosen, not measured.
"""


def find(q: Tensor, k: Tensor, runs: Tensor | None, seen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the place that each query copies from and the runs after the last query.

    Args:
        q, k: symbols [N, T] and [N, S], S >= T.
        runs: of the last query before q [N, S]; None: there is none, and q_t stands at place t.
        seen: place of the first query [N], with `runs`.

    Returns: places [N, T], one after the last key that matches, 0 for none, and runs [N, S].
    """
    places, after = in_parts(_find, _rows_at_a_time(q, k), q, k, runs, seen)
    return places, after


def _find(q: Tensor, k: Tensor, runs: Tensor | None, seen: Tensor | None) -> tuple[Tensor, Tensor]:
    length = q.shape[1]
    i, j = torch.arange(length, device=q.device)[:, None], torch.arange(k.shape[1], device=q.device)
    at = i if seen is None else i + seen[:, None, None]
    dtype = torch.int16 if k.shape[1] < 1 << 15 else torch.int32
    run = ((q[:, :, None] == k[:, None]) & (j < at)).to(dtype)
    width = 1
    while width < length:
        run = run + torch.where(run == width, _along_suffixes(run, width), 0)
        width *= 2
    if runs is not None:
        # a run that begins with the first query goes on from an earlier one
        before = F.pad(runs.to(dtype), (length, 0))[:, j - i - 1 + length]
        run = run + torch.where(run == i + 1, before, 0)
    longest = run.amax(dim=-1, keepdim=True).clamp(min=1)
    places = torch.where(run == longest, (j + 1).to(dtype), 0).amax(dim=-1)
    return places.long(), run[:, -1].int()


def _rows_at_a_time(q: Tensor, k: Tensor) -> int:
    return max(1, PAIRS.get(q.device.type, PAIRS["cuda"]) // (q.shape[1] * k.shape[1]))


def _along_suffixes(x: Tensor, steps: int) -> Tensor:
    """Return x_{t-steps, j-steps} of x [N, T, S], zero before the first."""
    return F.pad(x[:, :-steps, :-steps], (steps, 0, steps, 0))


def gradients(q: Tensor, k: Tensor, v: Tensor, of_copies: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of signs q, k and v [N, T, b] for one of the relaxed copies [N, T, b].

    `copying.Copy` defines these.
    """
    of_q, of_k, of_v = in_parts(_gradients, _rows_at_a_time(q, k), q, k, v, of_copies)
    return of_q, of_k, of_v


def _gradients(q: Tensor, k: Tensor, v: Tensor, of_copies: Tensor) -> tuple[Tensor, ...]:
    length, bits = q.shape[1:]
    t = torch.arange(length, device=q.device, dtype=q.dtype)[:, None]
    earlier = t.mT < t
    gate = torch.where(earlier, (MISMATCH / 2 * (q @ k.mT / bits - 1)).exp(), 0.0)
    suffix = product = gate  # of up to `width` symbols, and of as many
    width, steps = 1, []
    while width < min(WINDOW, length):
        earlier_suffix, earlier_product = (_along_suffixes(x, width) for x in (suffix, product))
        steps.append((width, product, earlier_suffix, earlier_product))
        suffix, product = suffix + product * earlier_suffix, product * earlier_product
        width *= 2
    root = (1 + suffix).sqrt()
    score = SLOPE * (root - 1) - t.clamp(min=1).log()
    score = F.pad(score.masked_fill(~earlier, float("-inf")), (1, 0), value=NOTHING)
    weights = score.softmax(dim=-1)[..., 1:]

    of_v = F.pad((weights.mT @ of_copies)[:, :-1], (0, 0, 1, 0))
    of_weights = of_copies @ F.pad(v[:, 1:], (0, 0, 0, 1)).mT
    of_score = weights * (of_weights - (weights * of_weights).sum(dim=-1, keepdim=True))
    of_suffix, of_product = SLOPE / 2 * of_score / root, torch.zeros_like(gate)
    for width, product, earlier_suffix, earlier_product in reversed(steps):
        later = _back_along_suffixes(of_product * product, width)
        of_product = of_suffix * earlier_suffix + of_product * earlier_product + later
        of_suffix = of_suffix + _back_along_suffixes(of_suffix * product, width)
    of_products = MISMATCH / (2 * bits) * gate * (of_suffix + of_product)  # of q k^T
    return of_products @ k, of_products.mT @ q, of_v


def _back_along_suffixes(x: Tensor, steps: int) -> Tensor:
    """Return x_{t+steps, j+steps} of x [N, T, S], zero after the last."""
    return F.pad(x[:, steps:, steps:], (0, steps, 0, steps))

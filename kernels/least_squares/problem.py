"""A call of least squares, checked and brought into the form that every backend takes."""

from typing import Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.least_squares.norm import for_heads, trace
from linbench.kernels.shapes import expanded

Method = Literal["cg", "chebyshev", "exact"]
Gradient = Literal["implicit", "unrolled"]

LEAST_RIDGE = {torch.float32: 1e-6, torch.float64: 1e-12}
"""The least ridge over one plus the trace of the Gram matrix, by dtype.

Chosen: a few units in the last place of the sums that make up such a matrix, so that rounding leaves it no
negative eigenvalue.
"""


class Problem(NamedTuple):
    """Arguments of a backend, as the door has them: q, k and v as given, all others in at least float32.

    Args:
        q, k: [B, T, Hk, K].
        v: [B, T, H, V].
        log_decay: None or [B, T, H].
        strength: [B, T, H].
        ridge: [B, T, H, K]. It may be less than a regular system needs.
        gram: [B, H, K, K].
        cross: [B, H, K, V].
        constant: whether all tokens were given one ridge.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    strength: Tensor
    ridge: Tensor
    gram: Tensor
    cross: Tensor
    steps: int
    method: Method
    gradient: Gradient
    constant: bool

    def widened(self) -> Self:
        """Return it with q, k and v in at least float32, for each head of values, and the ridge bounded."""
        wide, heads = self.strength.dtype, self.v.shape[2]
        q, k = for_heads(self.q.to(wide), heads), for_heads(self.k.to(wide), heads)
        with torch.no_grad():
            traces = trace(k, self.log_decay, self.strength, self.gram)
        ridge = torch.maximum(self.ridge, LEAST_RIDGE[wide] * (1 + traces)[..., None])
        return self._replace(q=q, k=k, v=self.v.to(wide), ridge=ridge)


def check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    strength: Tensor | None,
    ridge: Tensor | float,
    state: tuple[Tensor, Tensor] | None,
    steps: int,
    method: Method,
    gradient: Gradient,
) -> Problem:
    """Return the arguments of the door as a `Problem`.

    Raises ValueError: something does not fit, which is named.
    """
    _check_names(steps, method, gradient)
    if not q.dim() == v.dim() == 4 or q.shape != k.shape or q.shape[:2] != v.shape[:2] or q.shape[1] < 1:
        shapes = [*map(tuple, (q.shape, k.shape, v.shape))]
        raise ValueError(f"q and k [B, T, Hk, K] and v [B, T, H, V] with T >= 1, not {shapes}")
    batch, length, heads, value_dim = v.shape
    key_heads, key_dim = q.shape[2:]
    if heads % key_heads:
        raise ValueError(f"{key_heads} heads of keys do not divide {heads} of values")
    wide, tokens = at_least_float32(v.dtype), (batch, length, heads)
    log_decay = None if log_decay is None else expanded("log_decay", log_decay.to(wide), tokens)
    strength = v.new_ones(tokens, dtype=wide) if strength is None else strength.to(wide)
    if not isinstance(ridge, Tensor):  # filled there: a CUDA graph captures no copy from the CPU
        ridge = torch.full((), ridge, dtype=wide, device=v.device)
    ridge = ridge.to(wide)
    sizes = [(batch, heads, key_dim, each) for each in (key_dim, value_dim)]
    gram, cross = (v.new_zeros(size, dtype=wide) for size in sizes) if state is None else state
    if [gram.shape, cross.shape] != sizes:
        raise ValueError(f"the state must be {sizes}, not {[tuple(gram.shape), tuple(cross.shape)]}")
    return Problem(
        q,
        k,
        v,
        log_decay,
        expanded("strength", strength, tokens),
        expanded("ridge", ridge, (*tokens, key_dim)),
        gram.to(wide),
        cross.to(wide),
        steps,
        method,
        gradient,
        constant=ridge.dim() < 3 or ridge.shape[-3] == 1,
    )


def _check_names(steps: int, method: Method, gradient: Gradient) -> None:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    for name, given, known in (("method", method, Method), ("gradient", gradient, Gradient)):
        if given not in get_args(known):
            raise ValueError(f"{name} must be one of {', '.join(get_args(known))}, not {given!r}")

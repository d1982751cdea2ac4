"""DeltaFormer's values: each is corrected by what softmax attention reads at its key before it is written.

U = (I + diag(beta) B)^-1 V, B softmax over strictly earlier keys. U is made block by block: what earlier
blocks say is a product, and within a block a triangular system is solved in at least float32. Backward goes
through the blocks the other way, arXiv:2505.19488.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linbench.kernels.attention.calls import ROWS, heads_first, require_fit, scaled, split_scale, with_places
from linbench.kernels.operators import call_folded, choose_backend, without_autocast

_WIDEST = 128
"""Largest dimension of a head that the Triton kernels take."""


class Operands(NamedTuple):
    """Operands of a call with heads before tokens, in at least float32, as many heads of keys as of queries.

    q: [B, H, T, K], scaled. k, v: [B, H, S, K or V], the last T of the queries' own tokens, those before
    corrected already. beta: [B, H, T, 1]. there: [B, 1, 1, S], False for empty places.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    there: Tensor


def corrected_values(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    *,
    key_positions: Tensor | None = None,
    scale: float | Tensor | None = None,
    empty_is_zero: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return DeltaFormer's corrected values, arXiv:2505.19488.

    u_i = v_i - beta_i sum_{j < i} softmax_{j < i}(scale q_i . k_j) u_j; u_1 = v_1.

    Args:
        q: what asks for the correction, the keys themselves or queries [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V] with S >= T; Hk divides H. The last T are those of the tokens of
            q. Those before come from a cache, with values that are corrected already; if Hk is less than H,
            there are none.
        beta: [B, T, H].
        key_positions: [B, S] integers, `EMPTY` for places without a key; None if all have one.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.
        empty_is_zero: whether places without a key hold zeros, so that they need not be masked.
        backend: "auto", "blocks" or "reference"; for tokens without a cache and heads of at most 128 also
            "triton" on a GPU. But for the reference none lays a matrix of all queries and keys in memory.

    Returns: u of the last T tokens [B, T, H, V] in the dtype of v.

    Raises ValueError: shapes do not fit together, or a backend is not there.
    """
    require_fit(q, k, v, as_many=False)
    before = k.shape[1] - q.shape[1]
    if before < 0 or (before and q.shape[2] != k.shape[2]):
        raise ValueError("k and v have a place for each token of q at least, and more only for as many heads")
    if key_positions is not None and key_positions.shape != k.shape[:2]:
        raise ValueError(f"key_positions is {tuple(k.shape[:2])}, not {tuple(key_positions.shape)}")
    if beta.shape != q.shape[:3]:
        raise ValueError(f"beta is {tuple(q.shape[:3])}, not {tuple(beta.shape)}")
    has_kernel = before == 0 and key_positions is None and max(k.shape[3], v.shape[3]) <= _WIDEST
    backends = [*_BACKENDS, "triton"] if has_kernel else _BACKENDS
    took = choose_backend(backend, backends, v, otherwise="blocks", empty="blocks")
    if took == "triton":
        return _triton(q, k, v, beta, scale)
    there, k, v = with_places(k, v, key_positions, empty_is_zero=empty_is_zero)
    groups, dtype = q.shape[2] // k.shape[2], v.dtype
    with without_autocast(q):
        operands = Operands(
            scaled(heads_first(q), scale),
            heads_first(k, groups),
            heads_first(v, groups),
            heads_first(beta[..., None]),
            there[:, None, None],
        )
        return _BACKENDS[took](operands).transpose(1, 2).to(dtype)


def _triton(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float | Tensor | None) -> Tensor:
    """Call Triton's kernels, which are not installed everywhere, and slow to import."""
    from linbench.kernels.attention.triton.corrected import triton_corrected_values

    groups = q.shape[2] // k.shape[2]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
    q, factor = split_scale(q, scale, exact=False)
    return triton_corrected_values(q, k, v, beta, factor)


def _blocks(operands: Operands) -> Tensor:
    u: Tensor = call_folded(_Corrected.apply, *operands)
    return u


class _Rows:
    """Weights B of some rows [start, end) of the tokens over all keys up to their own."""

    def __init__(self, q: Tensor, k: Tensor, there: Tensor, start: int) -> None:
        before = k.shape[2] - q.shape[2]
        self.of = slice(start, min(start + ROWS, q.shape[2]))
        self.first, self.last = before + self.of.start, before + self.of.stop
        scores = q[:, :, self.of] @ k[:, :, : self.last].mT
        late = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(self.first)
        unseen = late | ~there[..., : self.last]
        # a row without any key before it has no softmax, and weighs nothing
        self.weights = scores.masked_fill_(unseen, float("-inf")).softmax(-1).masked_fill_(unseen, 0.0)

    @property
    def earlier(self) -> Tensor:
        """Weights of keys of earlier rows."""
        return self.weights[..., : self.first]

    def own(self, beta: Tensor) -> Tensor:
        """Return beta times the weights of keys of these rows, strictly lower triangular."""
        return beta[:, :, self.of] * self.weights[..., self.first :]


class _Corrected(torch.autograd.Function):
    """The function u of `Operands`, which keeps its operands and u for its gradient, and no weights."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, there: Tensor) -> Tensor:
        u = v.clone()
        for start in range(0, q.shape[2], ROWS):
            rows = _Rows(q, k, there, start)
            read = rows.earlier @ u[:, :, : rows.first]
            given = v[:, :, rows.first : rows.last] - beta[:, :, rows.of] * read
            u[:, :, rows.first : rows.last] = torch.linalg.solve_triangular(
                rows.own(beta), given, upper=False, unitriangular=True
            )
        return u[:, :, k.shape[2] - q.shape[2] :]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, du: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, beta, there, last = ctx.saved_tensors
        u = torch.cat([v[:, :, : k.shape[2] - q.shape[2]], last], dim=2)
        dv = torch.zeros_like(u)
        dv[:, :, k.shape[2] - q.shape[2] :] = du
        dq, dk, dbeta = torch.empty_like(q), torch.zeros_like(k), torch.empty_like(beta)
        for start in reversed(range(0, q.shape[2], ROWS)):
            rows = _Rows(q, k, there, start)
            here, seen = slice(rows.first, rows.last), slice(rows.last)
            dgiven = torch.linalg.solve_triangular(
                rows.own(beta).mT, dv[:, :, here], upper=True, unitriangular=True
            )
            dv[:, :, here] = dgiven
            dread = -beta[:, :, rows.of] * dgiven
            dv[:, :, : rows.first] += rows.earlier.mT @ dread
            dbeta[:, :, rows.of] = -(dgiven * (rows.weights @ u[:, :, seen])).sum(-1, keepdim=True)
            dscores = dread @ u[:, :, seen].mT
            dscores = rows.weights * (dscores - (rows.weights * dscores).sum(-1, keepdim=True))
            dq[:, :, rows.of] = dscores @ k[:, :, seen]
            dk[:, :, seen] += dscores.mT @ q[:, :, rows.of]
        return dq, dk, dv, dbeta, None


def reference(operands: Operands) -> Tensor:
    """Correct value after value, to be read beside the paper."""
    q, k, v, beta, there = operands
    before = k.shape[2] - q.shape[2]
    rows = []
    for b in range(len(q)):
        u = list(v[b, :, :before].unbind(1))
        for t in range(q.shape[2]):
            seen = [j for j in range(before + t) if there[b, 0, 0, j]]
            read = torch.zeros_like(v[b, :, 0])
            if seen:
                weights = torch.einsum("hk,hsk->hs", q[b, :, t], k[b][:, seen]).softmax(dim=-1)
                read = torch.einsum("hs,hsv->hv", weights, torch.stack([u[j] for j in seen], dim=1))
            u.append(v[b, :, before + t] - beta[b, :, t] * read)
        rows.append(torch.stack(u[before:], dim=1))
    return torch.stack(rows)


_BACKENDS = {"blocks": _blocks, "reference": reference}

"""Checks of what a recurrence is given: tensors that fit together, and gates that broadcast."""

from torch import Tensor

from linbench.kernels.operators import require_heads


def require_shared_keys(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Require q, k [B, T, Hk, K] and v [B, T, H, V] with tokens, and with heads that share keys evenly.

    Raises ValueError: they do not fit together, or a head or a number of it is missing.
    """
    require_heads(q=q, k=k, v=v)
    if (
        not q.dim() == v.dim() == 4
        or q.shape != k.shape
        or q.shape[:2] != v.shape[:2]
        or q.shape[1] < 1
        or v.shape[2] % q.shape[2]
    ):
        raise ValueError(
            "q, k [B, T, Hk, K] and v [B, T, H, V] with T >= 1 and Hk dividing H, not"
            f" {[*map(tuple, (q.shape, k.shape, v.shape))]}"
        )


def expanded(name: str, gate: Tensor, full: tuple[int, ...]) -> Tensor:
    """Return a gate in its full shape. Raises ValueError: it does not broadcast to that."""
    sizes = zip(reversed(gate.shape), reversed(full), strict=False)
    if gate.dim() > len(full) or not all(size in (1, wanted) for size, wanted in sizes):
        raise ValueError(f"{name} must broadcast to {tuple(full)}, not {tuple(gate.shape)}")
    return gate.expand(full)

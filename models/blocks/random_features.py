"""Random directions for random features: drawn once, never trained."""

import torch
from torch import Tensor


def directions(count: int, dim: int, *, orthogonal: bool, equal_norms: bool = False) -> Tensor:
    """Draw [count, dim] directions, each N(0, 1).

    Args:
        orthogonal: make every `dim` rows orthogonal to each other.
        equal_norms: give each row the length sqrt(dim).
    """
    # on the CPU by name, since models are also built on the meta device, which has no memory
    rows = torch.randn(count, dim, device="cpu")
    lengths = rows.new_full((count, 1), dim**0.5) if equal_norms else rows.norm(dim=-1, keepdim=True)
    if orthogonal:
        q, r = torch.linalg.qr(torch.randn(-(-count // dim), dim, dim, device="cpu"))
        # with the signs of r's diagonal all rotations are equally likely
        rotations = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
        rows = rotations.mT.reshape(-1, dim)[:count]
    scaled: Tensor = rows / rows.norm(dim=-1, keepdim=True) * lengths
    return scaled

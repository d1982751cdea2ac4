"""HiPPO-LegS, a matrix whose state holds the coefficients of Legendre polynomials. arXiv:2008.07669."""

from functools import cache

import torch
from torch import Tensor

from linbench.models.blocks.init import indices


@cache
def hippo_modes(size: int) -> tuple[Tensor, Tensor]:
    """Return frequencies [size / 2] of the normal part of HiPPO-LegS, and vectors [size, size / 2] complex.

    The matrix is -1/2 plus a skew one with sqrt((2 n + 1) (2 k + 1)) / 2 above the diagonal. Of each pair of
    conjugate modes one is returned; the first number of each vector is positive.
    """
    root = (2 * indices(size).double() + 1).sqrt()
    upper = torch.triu(root[:, None] * root / 2, diagonal=1)
    frequency, vectors = torch.linalg.eigh(-1j * (upper - upper.mT))
    vectors = vectors * (vectors[:1].conj() / vectors[:1].abs())
    return frequency[size // 2 :], vectors[:, size // 2 :]


def hippo(states: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return HiPPO-LegS in the basis of its modes: frequencies [M], P and B [M], the latter complex.

    The matrix is normal but for P P^T, with P_n = sqrt(n + 1/2), and B_n = sqrt(2 n + 1).
    """
    frequency, vectors = hippo_modes(states)
    root = (2 * indices(states).double() + 1).sqrt()
    write = vectors.mH @ root.to(vectors.dtype)
    return frequency, write * 0.5**0.5, write

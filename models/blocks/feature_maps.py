"""Feature maps phi(q) and phi(k) for memories that are sums of products of keys and values."""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.models.blocks.init import CPU

FeatureMapName = Literal[
    "identity",
    "elu",
    "elu+1",
    "exp",
    "relu",
    "silu",
    "dpfp-1",
    "dpfp-2",
    "dpfp-3",
    "hedgehog",
    "t2r",
    "hadamard",
    "powers-1",
    "powers-2",
    "powers-3",
    "monomials-2",
]


class FeatureMap(nn.Module):
    """A map of q, k [B, T, H, K] to features of both [B, T, H, width].

    Args:
        width: number of features of a head.
        positive: whether no feature is below zero.
        flops: operations of matrix products for the query or key of one head.
    """

    def __init__(self, width: int, *, positive: bool, flops: int = 0) -> None:
        super().__init__()
        self.width, self.positive, self.flops = width, positive, flops

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of q and of k."""
        return self.features(q), self.features(k)

    def features(self, x: Tensor) -> Tensor:
        """Return the features [..., width] of x [..., K], for maps that treat queries and keys alike."""
        raise NotImplementedError


class Elementwise(FeatureMap):
    """A function of each number."""

    def __init__(self, dim: int, function: Callable[[Tensor], Tensor], *, positive: bool = False) -> None:
        super().__init__(dim, positive=positive)
        self.function = function

    def features(self, x: Tensor) -> Tensor:
        """Return the function's values."""
        return self.function(x)


class DPFP(FeatureMap):
    """Deterministic parameter-free projection: 2 nu K features, most of them zero. arXiv:2102.11174.

    The features are r * roll(r, j) for j = 1 ... nu, side by side, with r = [relu(x), relu(-x)].
    """

    def __init__(self, dim: int, nu: int) -> None:
        super().__init__(2 * nu * dim, positive=True)
        self.nu = nu

    def features(self, x: Tensor) -> Tensor:
        """Return the features [..., 2 nu K]."""
        r = torch.cat([F.relu(x), F.relu(-x)], dim=-1)
        return torch.cat([r * r.roll(j, dims=-1) for j in range(1, self.nu + 1)], dim=-1)


class LearnedMap(FeatureMap):
    """A map with learned matrices W [2, count, K, K], the same for all heads.

    The first `count` matrices are for queries, the others for keys.
    """

    def __init__(self, dim: int, width: int, *, positive: bool, count: int = 1) -> None:
        super().__init__(width, positive=positive, flops=2 * count * dim * dim)
        bound = dim**-0.5  # as torch does for a linear layer
        self.weight = nn.Parameter(torch.empty(2, count, dim, dim).uniform_(-bound, bound))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of q and of k."""
        of_q, of_k = self.weight.unbind()
        q_products = [F.linear(q, matrix) for matrix in of_q.unbind()]
        k_products = [F.linear(k, matrix) for matrix in of_k.unbind()]
        return self.combine(q_products), self.combine(k_products)

    def combine(self, products: list[Tensor]) -> Tensor:
        """Return features [..., width] from the products [..., K] with each matrix."""
        raise NotImplementedError


class Hedgehog(LearnedMap):
    """softmax([2 W x, -2 W x]) over all 2 K features; W starts as the identity. arXiv:2402.04347."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, 2 * dim, positive=True)
        with torch.no_grad():
            self.weight.copy_(torch.eye(dim, device=CPU))

    def combine(self, products: list[Tensor]) -> Tensor:
        """Return the features [..., 2 K]."""
        both = torch.cat([2 * products[0], -2 * products[0]], dim=-1)
        return to_float32(both).softmax(dim=-1)


class T2R(LearnedMap):
    """relu(W x). arXiv:2103.13076."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, positive=True)

    def combine(self, products: list[Tensor]) -> Tensor:
        """Return the features [..., K]."""
        return F.relu(products[0])


class Hadamard(LearnedMap):
    """W_1 x * W_2 x, element by element: features of degree two and of either sign."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, positive=False, count=2)

    def combine(self, products: list[Tensor]) -> Tensor:
        """Return the features [..., K]."""
        return products[0] * products[1]


class Powers(FeatureMap):
    """a_1 x + a_2 x^2 + ... of each number, with learned a_i that start at 1 / i!. arXiv:2505.23735.

    They are the monomials of a single number, summed, so that a head keeps its width.
    """

    def __init__(self, dim: int, degree: int, width: int | None = None) -> None:
        super().__init__(width or dim, positive=False)
        self.coefficients = nn.Parameter(torch.tensor([1 / math.factorial(i) for i in range(1, degree + 1)]))

    def features(self, x: Tensor) -> Tensor:
        """Return the features [..., K]."""
        total = torch.zeros_like(x)
        for coefficient in self.coefficients.flip(0).unbind():  # Horner's rule
            total = x * (coefficient + total)
        return total


class Monomials(Powers):
    """All monomials of degree one and two side by side, each times its degree's a_i. arXiv:2505.23735."""

    pairs: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim, 2, dim + dim * (dim + 1) // 2)
        self.register_buffer("pairs", torch.triu_indices(dim, dim), persistent=False)

    def features(self, x: Tensor) -> Tensor:
        """Return the features [..., K + K (K + 1) / 2]."""
        first, second = self.pairs.unbind()
        one, two = self.coefficients.unbind()
        return torch.cat([one * x, two * x[..., first] * x[..., second]], dim=-1)


def squares(x: Tensor) -> Tensor:
    """Return x_n^2, and sqrt(2) x_n x_m for each pair n < m: phi(q) . phi(k) is (q . k)^2.

    The result is [..., K (K + 1) / 2] for x [..., K]. Pairs are made by turning x, whose gradient is cheaper
    than that of an index.
    """
    half, even = (x.shape[-1] + 1) // 2, x.shape[-1] % 2 == 0
    pairs = [x * x.roll(j, dims=-1) for j in range(1, half)]
    if even:  # the last turn meets each pair twice
        pairs.append(x[..., :half] * x[..., half:])
    return torch.cat([x.square(), *(math.sqrt(2) * pair for pair in pairs)], dim=-1)


_MAPS: dict[FeatureMapName, Callable[[int], FeatureMap]] = {
    "identity": lambda dim: Elementwise(dim, nn.Identity()),
    "elu": lambda dim: Elementwise(dim, F.elu),
    "elu+1": lambda dim: Elementwise(dim, lambda x: F.elu(x) + 1, positive=True),
    "exp": lambda dim: Elementwise(dim, torch.exp, positive=True),
    "relu": lambda dim: Elementwise(dim, F.relu, positive=True),
    "silu": lambda dim: Elementwise(dim, F.silu),
    "dpfp-1": lambda dim: DPFP(dim, 1),
    "dpfp-2": lambda dim: DPFP(dim, 2),
    "dpfp-3": lambda dim: DPFP(dim, 3),
    "hedgehog": Hedgehog,
    "t2r": T2R,
    "hadamard": Hadamard,
    "powers-1": lambda dim: Powers(dim, 1),
    "powers-2": lambda dim: Powers(dim, 2),
    "powers-3": lambda dim: Powers(dim, 3),
    "monomials-2": Monomials,
}


def feature_map(name: FeatureMapName, dim: int) -> FeatureMap:
    """Return the map of that name for heads of width `dim`."""
    return _MAPS[name](dim)

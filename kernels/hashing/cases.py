"""Cases of hashing, with the same functions in Python's whole numbers."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase
from linbench.kernels.hashing import bits, mixed, permuted

EDGES = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
"""Numbers at the ends of 32 and 64 bits."""


def signed(x: int) -> int:
    """Return the last 64 bits of a number, read with a sign."""
    return (x + 2**63) % 2**64 - 2**63


def mix(x: int) -> int:
    """Return 64 bits as `mixed` has them."""
    x = _half_mixed(signed(x))
    return x ^ (x >> 31)


def _half_mixed(x: int) -> int:
    x = signed((x ^ (x >> 30)) * -0x40A7B892E31B1A47)
    return signed((x ^ (x >> 27)) * -0x6B2FB644ECCEEE15)


def draw(key: int, counter: int) -> int:
    """Return 32 bits as `bits` has them."""
    return (_half_mixed(signed(key + mix(counter))) >> 32) % 2**32


def permute(key: int, x: int, size: int) -> int:
    """Return where `permuted` sends x: through the network, until that is below `size`."""
    root = int(size**0.5)
    height = min(range(max(2, root), max(1, root // 2), -1), key=lambda a: a * -(-size // a))
    x = _feistel(key, x, height, -(-size // height))
    while x >= size:
        x = _feistel(key, x, height, -(-size // height))
    return x


def _feistel(key: int, x: int, height: int, width: int) -> int:
    """Send a point of a rectangle through eight turns of the network."""
    halves, sides = [x // width, x % width], (height, width)
    for turn in range(8):
        hashed = (draw(key, turn) - 0x61C8864F * halves[1 - turn % 2]) % 2**32
        with_sign = hashed - (hashed >= 2**31) * 2**32
        hashed = (with_sign ^ (with_sign >> 16)) * -0x7A143595 % 2**32 >> 16
        halves[turn % 2] = (halves[turn % 2] + (hashed * sides[turn % 2] >> 16)) % sides[turn % 2]
    return halves[0] * width + halves[1]


def _case(kernel: Callable[[Tensor, Tensor], Tensor], one: Callable[[int, int], int]) -> KernelCase:
    """Build a case of a function of each key and each number.

    Args:
        kernel: from keys [B] and numbers [M] to [B, M].
        one: the same of one key and one number.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "key": torch.randint(-(2**63), 2**63 - 1, (3,), generator=generator),
        "x": torch.arange(200),
    }

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        key, x = given["key"], given["x"]
        numbers = [[one(k, n) for n in x.tolist()] for k in key.tolist()]
        return _halves(torch.tensor(numbers, device=x.device))

    def kernel_halves(given: Inputs) -> tuple[Tensor, ...]:
        return _halves(kernel(given["key"], given["x"]))

    return KernelCase(kernel_halves, reference, inputs, differentiable=False)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower 32 bits, each of which float64 holds exactly."""
    return x >> 32, x & 0xFFFFFFFF


def _mixed(key: Tensor, x: Tensor) -> Tensor:
    return mixed(key[:, None] + x, 5)


FAMILY = Family(
    cases={
        "hashing": {
            "mixing": partial(_case, _mixed, lambda key, x: mix(key + x + 5)),
            "bits": partial(_case, bits, draw),
            "permutation": partial(_case, partial(permuted, size=1000), partial(permute, size=1000)),
        }
    },
    profile_kind="batch",
    profile_names=("hashing",),
)

"""Cases of rotary positions, with the rotation as a product of complex numbers."""

from functools import partial

import torch
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.rotary import rotate


def _case(batch: int, length: int, heads: int, dim: int, *, own: bool) -> KernelCase:
    """Build a case.

    Args:
        own: whether every sequence starts at a position of its own, as after a state.
    """
    start = torch.arange(float(batch) if own else 1.0)[:, None, None]
    angle = (start + torch.arange(length)[:, None]) * 10_000 ** (-torch.arange(dim // 2) / (dim // 2))

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        here = angle.to(given["x"].device)
        return (rotate(given["x"], here.cos(), here.sin()),)

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        here = angle.to(given["x"]).unsqueeze(2)
        turned = torch.complex(*given["x"].chunk(2, dim=-1)) * torch.polar(torch.ones_like(here), here)
        return (torch.cat([turned.real, turned.imag], dim=-1),)

    return KernelCase(kernel, reference, {"x": normal(length, batch, heads, dim).transpose(0, 1)})


FAMILY = Family(
    cases={
        "rotary": {
            "one place for all": partial(_case, 3, 65, 2, 64, own=False),
            "places of their own": partial(_case, 2, 7, 3, 36, own=True),
        }
    },
    profile_kind="rotary positions",
    profile_names=("linbench::rotate", "linbench_rotate"),
)

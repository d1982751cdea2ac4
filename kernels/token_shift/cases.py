"""Cases of the token shift."""

from functools import partial

import torch
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.token_shift import token_shift


def _case(
    streams: int, batch: int, length: int, width: int, *, last: bool = False, offset: bool = False
) -> KernelCase:
    inputs = {"x": normal(batch, length, width), "mix": normal(streams, width)}
    if last:
        inputs["last"] = normal(batch, width)
    if offset:
        inputs["offset"] = normal(streams, length, batch, width).transpose(1, 2)

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        offsets = given["offset"].unbind() if offset else None
        return token_shift(given["x"], given["mix"], given.get("last"), offset=offsets)

    return KernelCase(kernel, _reference, inputs)


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    x, share = given["x"], given["mix"][:, None, None] + given.get("offset", 0)
    first = given.get("last", torch.zeros_like(x[:, 0]))[:, None]
    earlier = torch.cat([first, x], dim=1)[:, :-1]
    return ((1 - share) * x + share * earlier).unbind()


FAMILY = Family(
    cases={
        "token_shift": {
            "six streams": partial(_case, 6, 3, 99, 128),
            "odd width, from a token": partial(_case, 4, 2, 65, 70, last=True),
            "with offsets": partial(_case, 5, 2, 100, 192, last=True, offset=True),
            "many tokens": partial(_case, 1, 8, 4097, 256),
            "one token": partial(_case, 4, 3, 1, 64, last=True),
        }
    },
    profile_kind="token shift",
    profile_names=("token_shift",),
)

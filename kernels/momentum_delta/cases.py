"""Cases of the delta rule with momentum; the reference is the loop over tokens in float64."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, Operation, Shape, normal, random_inputs
from linbench.kernels.momentum_delta import momentum_delta

GATES = ("log_decay", "log_momentum", "step", "share")


def _case(
    batch: int, length: int, heads: int, key_dim: int, value_dim: int, key_heads: int | None = None
) -> KernelCase:
    q, k = normal(2, batch, length, key_heads or heads, key_dim)
    a, m, e, b = normal(4, batch, length, heads)
    inputs = {
        "q": q,
        "k": F.normalize(k, dim=-1),
        "v": normal(length, batch, heads, value_dim).transpose(0, 1),
        "log_decay": F.logsigmoid(2 * a),
        "log_momentum": F.logsigmoid(2 * m),
        "step": 2 * e.sigmoid(),
        "share": b.sigmoid() / 2,
        "S": normal(batch, heads, key_dim, value_dim),
        "N": normal(heads, batch, key_dim, value_dim).transpose(0, 1),
    }
    wide = (*GATES, "S", "N")
    return KernelCase(_kernel, partial(_kernel, backend="reference"), inputs, at_least_float32=wide)


def _kernel(given: Inputs, backend: str = "auto") -> tuple[Tensor, ...]:
    others = {name: given[name] for name in ("q", "k", "v", *GATES)}
    o, state = momentum_delta(**others, state=(given["S"], given["N"]), backend=backend)  # type: ignore[arg-type]
    return o, *state


def _inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
    return random_inputs(
        shape,
        dtype,
        device,
        sizes=lambda _: {
            **dict.fromkeys(("q", "k", "v"), (*shape,)),
            **dict.fromkeys(GATES, shape[:3]),
        },
    )


def _timed(given: Inputs, backend: str = "auto") -> Tensor:
    a, m, e, b = (given[name].to(torch.promote_types(given[name].dtype, torch.float32)) for name in GATES)
    return momentum_delta(
        given["q"],
        F.normalize(given["k"].to(a.dtype), dim=-1).to(given["k"].dtype),
        given["v"],
        log_decay=F.logsigmoid(a),
        log_momentum=F.logsigmoid(m),
        step=2 * e.sigmoid(),
        share=b.sigmoid() / 2,
        backend=backend,  # type: ignore[arg-type]
    )[0]


def _flops(shape: Shape) -> float:
    return 8.0 * shape.B * shape.T * shape.H * shape.D**2


FAMILY = Family(
    cases={
        "momentum_delta": {
            "as published": partial(_case, 2, 70, 2, 16, 16),
            "odd sizes": partial(_case, 2, 33, 3, 5, 7),
            "shared keys": partial(_case, 2, 33, 4, 5, 7, 2),
            "one token": partial(_case, 2, 1, 2, 16, 16),
        }
    },
    profile_kind="recurrence",
    profile_names=("momentum_delta",),
    operations={"momentum_delta": Operation(_inputs, _timed, _flops, partial(_timed, backend="chunkwise"))},
    shown_with_models=True,
)

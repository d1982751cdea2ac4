"""Operations of attention that `linbench bench ops` times: what layers compute between their linear maps."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import attention, flops_per_token
from linbench.kernels.attention.corrections import corrected_values
from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.family import Inputs, Operation, Shape, random_inputs


def _made(*names: str) -> Callable[[Shape, torch.dtype, str], Inputs]:
    """Return a function that draws q, k and v, and of `names` gate, w and beta in float32."""

    def inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
        whole = (*shape,)
        heads = random_inputs(shape, dtype, device, sizes=lambda shape: dict.fromkeys(("q", "k", "v"), whole))
        sizes = {"w": whole, "gate": whole[:3], "beta": whole[:3]}
        drawn = random_inputs(
            shape, torch.float32, device, sizes=lambda shape: {name: sizes[name] for name in names}
        )
        for name, make in (("w", partial(F.normalize, dim=-1)), ("gate", F.logsigmoid), ("beta", F.sigmoid)):
            if name in drawn:
                heads[name] = make(drawn[name])
        return heads

    return inputs


def _kept(given: Inputs) -> tuple[Tensor, Tensor] | None:
    """Return the sums of forget gates of a call that has them."""
    if "gate" not in given:
        return None
    sums = given["gate"].double().cumsum(dim=1)
    return sums, sums


def _attention(given: Inputs) -> Tensor:
    return attention(given["q"], given["k"], given["v"], kept=_kept(given))


def _path(given: Inputs, backend: str = "auto") -> Tensor:
    q, k, v, w, beta = (given[name] for name in ("q", "k", "v", "w", "beta"))
    return path_attention(q, k, v, w, 2 * beta, kept=_kept(given), backend=backend)


def _deltaformer(given: Inputs, backend: str = "auto") -> Tensor:
    q, k, v, beta = (given[name] for name in ("q", "k", "v", "beta"))
    return attention(q, k, corrected_values(k, k, v, beta, backend=backend))


def _flops(shape: Shape, times: float = 1.0) -> float:
    """Return the operations of the scores and the weighted sum of causal attention, `times` over."""
    per_token = flops_per_token(heads=shape.H, key_dim=shape.D, value_dim=shape.D, keys=(shape.T + 1) / 2)
    return times * shape.B * shape.T * per_token


OPERATIONS = {
    "attention": Operation(_made(), _attention, _flops, _attention),
    "fox": Operation(_made("gate"), _attention, _flops, _attention),
    "path": Operation(_made("w", "beta"), _path, _flops, partial(_path, backend="blocks")),
    "path_fox": Operation(_made("w", "beta", "gate"), _path, _flops, partial(_path, backend="blocks")),
    "deltaformer": Operation(
        _made("beta"), _deltaformer, partial(_flops, times=2.0), partial(_deltaformer, backend="blocks")
    ),
}
"""Operations by name. The strength of PaTH is twice the `beta` that is drawn.

Its reflections do not count as work.
"""

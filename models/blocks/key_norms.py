"""Norms of queries and keys, and the scale of scores that belongs to one of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from linbench.kernels.norms import l2_norm
from linbench.models.blocks.norms import CentredRMSNorm, RMSNorm, l1_norm


def key_norm(name: str, key_dim: int) -> Callable[[Tensor], Tensor]:
    """Return the norm of queries or keys [..., K] that the setting `qk_norm` names."""
    norms: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
        "none": nn.Identity,
        "l1": lambda: l1_norm,
        "l2": lambda: l2_norm,
        "rms": partial(RMSNorm, key_dim),
        "rms_centred": partial(CentredRMSNorm, key_dim),
    }
    return norms[name]()


def score_scale(settings: Any, key_dim: int) -> nn.Parameter | None:
    """Return a learned scale [H] of scores, from sqrt(K) on, with an l2 norm; None for 1 / sqrt(K)."""
    if settings.qk_norm != "l2":
        return None
    return nn.Parameter(torch.full((settings.heads,), key_dim**0.5))

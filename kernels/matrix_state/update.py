"""What a token writes into the state."""

from typing import NamedTuple

from torch import Tensor


class Add(NamedTuple):
    """S + k v^T."""


class Delta(NamedTuple):
    """S + beta k (v - S^T k)^T, with S already decayed: erase what k recalls, then write. beta broadcastable to [B, T, H], in [0, 2]."""

    beta: Tensor


Update = Add | Delta

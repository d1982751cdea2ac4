"""The kernel of FlashQLA 0.1: the gated delta rule in 16 bits, for heads of 128, on Hopper and newer."""

import torch
from torch import Tensor

from linbench.bench.peer import OperationCalls, Peer, UnsupportedByPeerError

_HEAD_DIM = 128
"""The only dimension of keys and of values for which it has kernels."""


def operations(compiling: bool) -> OperationCalls:
    """Return its chunked gated delta rule, which returns no final state here.

    Its import fails on a GPU that it has no kernels for.
    """
    from flash_qla import chunk_gated_delta_rule

    def gated_deltanet(x: dict[str, Tensor]) -> Tensor:
        q, k, v = (x[name] for name in ("q", "k", "v"))
        if v.dtype not in (torch.bfloat16, torch.float16):
            raise UnsupportedByPeerError("computes in bf16 and fp16 only")
        if not q.shape[-1] == v.shape[-1] == _HEAD_DIM:
            raise UnsupportedByPeerError(f"has heads of {_HEAD_DIM} only")
        o: Tensor = chunk_gated_delta_rule(q, k, v, x["log_decay"], x["beta"])[0]
        return o

    return {"gated_deltanet": gated_deltanet}


PEER = Peer(
    name="flash_qla",
    package="flash_qla",
    distribution="flash-qla",
    runs_on=("cuda",),
    note="flash_qla: the chunked gated delta rule alone, as its autograd function computes it by default.",
    operations=operations,
)

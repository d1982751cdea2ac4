"""The published recurrences as settings of `matrix_state`, with random inputs.

Doctor, benchmarks and tests use the same list.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state import Add, Delta, LowRank, Update, matrix_state
from linbench.kernels.matrix_state.recurrence import Read
from linbench.kernels.matrix_state.update import Reads


class Instance(NamedTuple):
    """Settings of a published recurrence.

    Args:
        decay: "scalar" is per head and token, "vector" also per row of the state.
        update: rule of the write; "erase" is a delta rule with an erase key of its own.
        neg_eigval: whether beta of a delta rule goes up to 2 instead of 1.
    """

    decay: Literal["none", "scalar", "vector"]
    update: Literal["add", "delta", "erase", "low_rank"]
    read: Read = "after"
    steps: int = 1
    neg_eigval: bool = True


INSTANCES = {
    "linear_attention": Instance("none", "add"),
    "scalar_decay": Instance("scalar", "add"),
    "gla": Instance("vector", "add"),
    "rwkv6": Instance("vector", "add", read="before"),
    "deltanet": Instance("none", "delta"),
    "gated_deltanet": Instance("scalar", "delta"),
    "gated_deltaproduct": Instance("scalar", "delta", steps=2),
    "comba": Instance("scalar", "erase"),
    "kda": Instance("vector", "delta"),
    "rwkv7": Instance("vector", "low_rank"),
}
"""Recurrences by name.

Linear attention 2006.16236; RetNet 2307.08621, Mamba-2 2405.21060; GLA 2312.06635; RWKV-6 2404.05892;
DeltaNet 2406.06484; Gated DeltaNet 2412.06464; Gated DeltaProduct 2502.10297; Comba 2506.02475; KDA
2510.26692; RWKV-7 2503.14456.
"""


def random_inputs(
    instance: Instance,
    *,
    batch: int,
    length: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    key_heads: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    state: bool = False,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Draw signed random inputs by name, the same on every device.

    These are q, k, v, and those of log_decay, beta, erase_key, a, b, bonus and state that the instance has.
    Keys are unit vectors, beta lies in (0, 2) or (0, 1), log decays are -exp(N(0, 1)) / 4 per token. Gates
    and the state are float32 or better.
    """
    generator = torch.Generator().manual_seed(seed)
    key_heads = heads if key_heads is None else key_heads
    wide = at_least_float32(dtype)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    def key(steps: int) -> Tensor:
        return F.normalize(normal(batch, steps * length, key_heads, key_dim), dim=-1)

    inputs = {
        "q": key(1),
        "k": key(instance.steps),
        "v": normal(batch, instance.steps * length, heads, value_dim),
    }
    gates = {}
    if instance.decay != "none":
        gates["log_decay"] = (
            -normal(batch, length, heads, *([key_dim] if instance.decay == "vector" else [])).exp() / 4
        )
    if instance.update in ("delta", "erase"):
        gates["beta"] = (1 + instance.neg_eigval) * normal(batch, instance.steps * length, heads).sigmoid()
    if instance.update == "erase":
        inputs["erase_key"] = 0.7 * inputs["k"]
    if instance.update == "low_rank":
        inputs["a"] = -key(instance.steps)
        inputs["b"] = -inputs["a"] * torch.rand(inputs["a"].shape, dtype=torch.float64, generator=generator)
    if instance.read == "before":
        gates["bonus"] = normal(heads, key_dim)
    if state:
        gates["state"] = normal(batch, heads, key_dim, value_dim)
    return {name: x.to(device, dtype) for name, x in inputs.items()} | {
        name: x.to(device, wide) for name, x in gates.items()
    }


def apply(
    instance: Instance,
    inputs: dict[str, Tensor],
    *,
    final: bool = True,
    cu_seqlens: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Return o of `inputs` (as from `random_inputs`), and the final state if it is wanted."""
    update: Update = Add()
    if instance.update in ("delta", "erase"):
        reads: Reads = "undecayed" if instance.update == "erase" else "decayed"
        update = Delta(inputs["beta"], inputs.get("erase_key"), reads, instance.neg_eigval)
    elif instance.update == "low_rank":
        update = LowRank(inputs["a"], inputs["b"])
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    return matrix_state(
        q,
        k,
        v,
        log_decay=inputs.get("log_decay"),
        update=update,
        read=instance.read,
        bonus=inputs.get("bonus"),
        steps=instance.steps,
        state=inputs.get("state"),
        final=final,
        cu_seqlens=cu_seqlens,
        backend=backend,  # type: ignore[arg-type]
    )

"""A gated MLP per head that is trained chunk by chunk, beside attention over the same queries and keys."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.dtypes import to_float32
from linbench.kernels.fast_weight import Network, Step, fast_weight, flops_per_token, initial_state
from linbench.kernels.norms import l2_norm
from linbench.models.base import LayerInfo
from linbench.models.blocks.beside_attention import FastOut
from linbench.models.blocks.init import CPU, set_bias
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.starting_gates import inverse_softplus
from linbench.models.blocks.trained_memory import InitialMemory


class FastBranch(nn.Module):
    """LaCT's fast weights: q, k and v of attention, activated, through a gated MLP per fast head.

    Args:
        settings: of the layer.
        layer: place of the layer.
        key_width, value_width: channels of all heads together, which fast heads share out anew.
    """

    def __init__(self, settings: Any, layer: LayerInfo, key_width: int, value_width: int) -> None:
        super().__init__()
        heads = settings.fast_heads or settings.heads
        if key_width % heads or value_width % heads:
            raise UserError(
                f"model.fast_heads = {heads} does not divide the {key_width} channels of keys and"
                f" {value_width} of values."
            )
        self.heads: int = heads
        self.network = Network("gated", loss="product")
        self.step = Step(
            settings.mini_batch,
            "before",
            momentum=settings.momentum,
            orthogonal=5 if settings.muon else 0,
            keeps_norms=True,
        )
        key_dim, value_dim = key_width // heads, value_width // heads
        hidden = settings.inner_expand * key_dim
        self.shapes = self.network.shapes(key_dim, hidden, value_dim)
        stds = [rows**-0.5 for rows, _ in self.shapes]
        self.initial = InitialMemory(self.shapes, heads, bias=False, stds=stds)
        self.scales = nn.Parameter(torch.ones(2, key_width))
        self.shifts = nn.Parameter(torch.zeros(2, key_width))
        self.rates = Affine(layer.d_model, len(self.shapes) * heads)
        set_bias(self.rates, inverse_softplus(torch.tensor(settings.inner_rate, device=CPU)))
        self.momentum = Affine(layer.d_model, heads) if settings.momentum else None
        self.norm = RMSNorm(value_dim)
        self.gate = Affine(layer.d_model, heads) if settings.fast_gate else None

    def forward(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        turn: Any,
        memory: Tensor | None,
        seen: Tensor | None,
    ) -> FastOut:
        """Return the branch's output and memory.

        Args:
            x: the layer's input [B, T, D].
            q, k: [B, T, H, K], before they are rotated.
            v: [B, T, H, V].
            turn: rotates q and k by position.
            memory: [B, F, N] to continue from; None is the start.
            seen: number of tokens before x [B], given with a memory.
        """
        unit = (self._unit(i, each) for i, each in enumerate((q, k)))
        fast_q, fast_k = map(self._share, turn(*unit))
        o, after = fast_weight(
            fast_q,
            fast_k,
            self._share(F.silu(v)),
            F.softplus(to_float32(self.rates(x))).view(*x.shape[:2], self.heads, -1),
            self.initial(q),
            network=self.network,
            step=self.step,
            log_momentum=None if self.momentum is None else F.logsigmoid(to_float32(self.momentum(x))),
            state=memory,
            seen=seen,
        )
        o = self.norm(o)
        if self.gate is not None:
            o = o * F.silu(self.gate(x))[..., None]
        return FastOut(o.reshape(v.shape), after)

    def _unit(self, index: int, x: Tensor) -> Tensor:
        """Return silu(scale x + shift) [B, T, H, K], of length one in every fast head."""
        scaled = F.silu(self.scales[index] * x.flatten(2) + self.shifts[index])
        return l2_norm(self._share(scaled)).view(x.shape).to(x.dtype)

    def _share(self, x: Tensor) -> Tensor:
        """Return heads' channels [B, T, H, K] shared out anew among fast heads."""
        return x.reshape(*x.shape[:2], self.heads, -1)

    def init_state(self, like: Tensor, batch: int) -> Tensor:
        """Return the initial memory."""
        return initial_state(self.initial(like), self.network, self.step, batch)

    def state_floats(self) -> int:
        """Return the floats of the memory."""
        return self.heads * self.step.floats(self.network, self.shapes)

    def flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence per token."""
        return flops_per_token(self.shapes, self.step, heads=self.heads, length=seq_len)

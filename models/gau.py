"""GAU, the gated attention unit: one head of squared ReLU attention inside of a gated linear unit."""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.attention import Weigh
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.heads import HeadSettings, Readout, inner_width
from linbench.models.blocks.init import BranchSettings
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.positions import turned_dims


class GAUSettings(BranchSettings):
    """Settings of GAU. Published: one head with keys of 128, values twice as wide as the model, a gate."""

    key_dim: int = Field(128, ge=1, description="width K of queries and keys")
    expand: float = Field(2.0, gt=0, description="width of values and gate over d_model")
    conv: int = INPUT_CONVOLUTION
    positions: Literal["rope", "none"] = Field("rope", description="how a token knows where it stands")
    window: int | None = Field(
        None, ge=1, description="how many keys a query sees, itself included; null is all"
    )
    weights: Weigh = Field("squared_relu", description="what makes weights of scores")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")
    output_gate: Literal["none", "swish"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )


class GAUProjection(InputConvolution):
    """Map x to q and k [B, T, 1, K], scaled and shifted from one map z, and to v [B, T, 1, E]."""

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(layer.d_model, settings.conv)
        self.heads, self.value_heads = 1, 1
        self.key_dim, self.value_dim = settings.key_dim, inner_width(settings.expand, layer.d_model)
        self.z, self.v = Linear(layer.d_model, self.key_dim), Linear(layer.d_model, self.value_dim)
        self.scales = nn.Parameter(torch.ones(2, self.key_dim))
        self.shifts = nn.Parameter(torch.zeros(2, self.key_dim))

    def forward(self, x: Any, conv: Tensor | None) -> tuple[Any, ...]:
        """Return q, k, v and the state of the convolution, for a `SharedInput`."""
        read, conv = (x, None) if self.short is None else super().forward(x.x, conv)
        z, v = F.silu(self.z(read)), F.silu(self.v(read))
        q, k = (self.scales * z[..., None, :] + self.shifts).to(z.dtype).chunk(2, dim=-2)
        return q, k, v[..., None, :], conv

    def feature_flops(self) -> int:
        """Return the operations of scales, shifts and the gate."""
        return int(4 * self.key_dim + self.value_dim)


class GAU(Attention):
    """GAU, the gated attention unit: one head of squared ReLU attention inside of a gated linear unit.

        y_t = W_o (u_t * o_t)
        o_t = 1/t sum_{s <= t} relu(q_t . k_s / sqrt(K))^2 v_s
        z_t = silu(W_z x_t),  q_t = rope(a * z_t + b),  k_t = rope(c * z_t + d)
        u_t = silu(W_u x_t),  v_t = silu(W_v x_t)

    Hua et al. 2022, arXiv:2202.10447. It takes the place of mixer and channel mixer: two of these stand for
    one layer of attention with its channel mixer (`channel_mixer=own`).

    State: a cache of K + E floats per token seen, 128 and 2 D as published, at most w tokens with a window.

    Known for: quality of a transformer with one cheap head. Weights do not sum to one and are exactly zero
    for keys that do not match, but a single match counts less in a longer sequence.

    Differences: the source divides products by the length of the sequence before they are squared, which a
    stream does not know; here the mean over the keys so far is taken, of products over sqrt(K) (Su 2022,
    kexue.fm/archives/8934). Positions are rotary, without its learned bias of distances. Scales a and c start
    at one, where N(0, 0.02) would make all weights vanish. W_o starts at zero (docs/decisions/0002). In the
    controlled form E = D, with a convolution and a norm over all channels instead of positions and the gate.
    """

    name = "gau"
    channel_mixer = "none"
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        loss="none: values are summed, weighted by relu(q . k)^2", optimiser="none: nothing is fitted"
    )
    Settings = GAUSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        "expand": 1.0, "conv": 4, "positions": "none", "output_norm": "rms", "output_gate": "none",
    }  # fmt: skip

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.weigh = settings.weights

    def make_projection(self) -> Any:
        """Return the module that makes q, k and v."""
        return GAUProjection(self.settings, self.layer)

    def make_readout(self) -> Readout:
        """Return norm, gate and output map of one head."""
        same = self.settings.model_dump(include={"output_norm", "output_gate", "silent"})
        return Readout(HeadSettings(heads=1, expand_v=self.settings.expand, **same), self.layer)

    def make_scale(self) -> None:
        """Return None: scores are divided by sqrt(K)."""

    def turned_dims(self) -> int:
        """Return K."""
        return turned_dims(self.settings.key_dim, 1.0)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for scales and shifts."""
        return {f"project.{name}": Rule(decay=False) for name in ("scales", "shifts")}

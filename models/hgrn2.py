"""HGRN2: one gate per key channel says what to forget and where to write."""

import math
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.settings import ABSENT
from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.convolution import ShortConvolution
from linbench.models.blocks.feature_maps import feature_map
from linbench.models.blocks.heads import OUTPUT_NORM, HeadProjection, OutputNorm, QKNorm
from linbench.models.blocks.init import CPU
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.starting_gates import GateSettings
from linbench.models.learner import Learner


class HGRN2Settings(GateSettings, MatrixSettings):
    """Settings of HGRN2.

    Published: SiLU on q, a norm over all heads together; no convolution, no norm of q, no gate.
    """

    conv: int = Field(
        0,
        ge=0,
        le=4,
        description="kernel of the short convolution on q, the decay's logits and v, without SiLU; 0 is none",
    )
    feature_map: Literal["identity", "elu", "elu+1", "relu", "silu"] = Field(
        "silu", description="applied to q, before the norm; k is as wide as the decays"
    )
    value_map: Literal["identity", "silu"] = Field("identity", description="applied to v")
    qk_norm: QKNorm = Field("none", description="norm of q per head; k is as long as the decays make it")
    output_norm: OutputNorm = Field("rms_all", description=OUTPUT_NORM.description)
    positions: Literal["none"] = Field(
        "none", description="none: a key that is tied to the decay cannot be rotated"
    )
    key_heads: None = Field(
        None,
        description="null: every head of the memory has a decay, and its key is tied to it",
        json_schema_extra={ABSENT: None},
    )
    share_kv: Literal[False] = Field(
        False,
        description="false: a key is tied to the decay, and has no linear map that could make values",
        json_schema_extra={ABSENT: False},
    )


class TiedProjection(HeadProjection):
    """Map x to q [B, T, H, K], the decays' logits [B, T, H, K] in place of k, and v [B, T, H, V]."""

    takes_canon = False

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        if settings.conv:
            self.conv = ShortConvolution(sum(self.widths), settings.conv, activation=None, parts=self.widths)
        self.k_norm = nn.Identity()
        self.value_map = feature_map(settings.value_map, self.value_dim)

    def forward(
        self, x: Tensor | SharedInput | tuple[Tensor, ...], conv: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return q, logits, v and the state of the convolution, as `HeadProjection.forward` does."""
        q, logits, v, conv = self.project_and_convolve(x, conv)
        return self.q_norm(self.feature_map.features(q)), logits, self.value_map.features(v), conv


class HGRN2(MatrixMixer):
    """HGRN2: one gate per key channel says what to forget and where to write.

        S_t = diag(f_t) S_{t-1} + (1 - f_t) v_t^T
        o_t = S_t^T q_t / sqrt(K)
        f_t = b + (1 - b) sigmoid(W x_t + c),  b the layer's lower bound

    Qin et al. 2024, arXiv:2404.07904; the bounds are those of HGRN, 2023, arXiv:2311.04823.

    State: H K V, constant in length.

    Known for: lower bounds that rise with depth, so that later layers remember for longer. Before training f
    is 0.5 in the first layer, a half-life of one token, and 0.75 in the second of two: few layers are slow to
    learn recall.

    Differences: published gates have no c; here they have one with a `forget_bias`, so that they can start
    open. What is written is 1 - f, so open gates also write little. Published models have heads of 128 keys
    (expand_ratio), D / 128 of them; here 2 of D / 2 by default. Published bounds are one matrix of the whole
    model, a softmax over layers of which layer l takes the first l parts. A layer here knows only itself: b
    is the sigmoid of a vector of its own, which starts where the published one does, at l / L in layer l of
    L, and learns; a layer's bound may therefore pass the next one's. The first layer has none, as published.
    In the controlled form q and v get their SiLU after the convolution and q its norm; k is tied to f, so its
    length is the equation's. The output projection starts at zero (docs/decisions/0002).
    """

    name = "hgrn2"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="decay per key channel and token; the key is 1 - decay",
    )
    Settings = HGRN2Settings
    controlled: ClassVar[dict[str, Any] | None] = {**(MatrixMixer.controlled or {}), "value_map": "silu"}
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, _ = self.memory_shape
        start = torch.full((heads, key_dim), layer.index / layer.count, device=CPU).logit()
        self.bound = nn.Parameter(start) if layer.index else None
        self.bias: nn.Parameter | None = None
        if settings.rate is not None:
            self.bias = nn.Parameter(settings.start(torch.zeros_like(start), self._bias_for))

    def _bias_for(self, rate: float) -> float:
        """Return c with b + (1 - b) sigmoid(c) = e^-rate."""
        bound, kept = self.layer.index / self.layer.count, math.exp(-rate)
        if kept <= bound:
            raise UserError(
                f"model.forget_bias = {self.settings.forget_bias} starts gates at {kept:.3g}, but those of"
                f" HGRN2's layer {self.layer.index + 1} of {self.layer.count} are bounded by {bound:.3g} from"
                " below; choose a larger one."
            )
        return math.log((kept - bound) / -math.expm1(-rate))

    def make_projection(self) -> HeadProjection:
        """Return a projection that makes the decays' logits in place of k."""
        return TiedProjection(self.settings, self.layer)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation; `k` holds the decays' logits."""
        log_decay = self.log_decay(k)
        write = (-torch.expm1(log_decay)).to(q.dtype)  # 1 - f
        return matrix_state(q, write, v, log_decay=log_decay, state=memory)

    def log_decay(self, logits: Tensor) -> Tensor:
        """Return log f [B, T, H, K], in at least float32.

        b + (1 - b) sigmoid(z) is sigmoid(z) / sigmoid(z - log b), which keeps its digits near zero and near
        one.
        """
        logits = to_float32(logits)
        if self.bias is not None:
            logits = logits + self.bias.to(logits.dtype)
        if self.bound is None:
            return F.logsigmoid(logits)
        log_bound = F.logsigmoid(self.bound.to(logits.dtype))
        return (F.logsigmoid(logits) - F.logsigmoid(logits - log_bound)).clamp(max=0)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the bounds, and for the biases where there are any."""
        return {name: Rule(decay=False) for name in ("bound", "bias") if getattr(self, name) is not None}

"""Gated linear attention: every key channel has a decay that depends on the token."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import LowRankDecay
from linbench.models.blocks.heads import NO_CONVOLUTION, NO_QK_NORM
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.starting_gates import GateSettings, logit
from linbench.models.learner import Learner


class GLASettings(GateSettings, MatrixSettings):
    """Settings of GLA.

    Published: keys half as wide as the model, norm per head and a swish gate; no convolution, no feature map,
    no norm of q and k.
    """

    expand_k: float = Field(0.5, gt=0, description="total key width over d_model")
    conv: int = NO_CONVOLUTION
    qk_norm: Literal["none", "l2", "rms"] = NO_QK_NORM
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )
    positions: Literal["none", "rope", "selective"] = Field(  # type: ignore[assignment]  # one more
        "none",
        description=(
            "whether q and k are rotated after their norm: rope by where they stand, selective by angles that"
            " each token chooses (2511.17388)"
        ),
    )
    gate_rank: int = Field(16, ge=1, description="rank of the map from the token to its decays")
    gate_divisor: float = Field(
        16.0, gt=0, description="the logarithm of a decay is that of a sigmoid divided by this"
    )
    gate_bias: float = Field(
        0.0,
        description=(
            "bias of the decays at first; 0 is a half-life of 16 tokens, and 4 to 6 remembers for longer"
        ),
    )

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.forget_bias is not None and self.gate_bias:
            raise ValueError("forget_bias and gate_bias both say where decays start; give one of the two")
        return self

    @property
    def decay_bias(self) -> float:
        """Start of the decays' bias."""
        return self.gate_bias if self.rate is None else logit(self.gate_divisor * self.rate)


class GLA(MatrixMixer):
    """Gated linear attention: every key channel has a decay that depends on the token.

        S_t = diag(a_t) S_{t-1} + k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)
        log a_t = logsigmoid(W_2 W_1 x_t + b) / 16

    Yang et al. 2023, arXiv:2312.06635.

    State: H K V, constant in length; with positions=selective also Hk K / 2 angles.

    Known for: forgetting by content and by channel, which for language beats a constant decay and one decay
    per head. Every channel starts at a decay of 0.958, a half-life of 16 tokens: short for recall over
    hundreds (`forget_bias`). Nothing is erased except by forgetting.

    With positions=selective each token also turns pairs of key channels by an angle of its choice (Selective
    RoPE, Movahedi et al. 2025, arXiv:2511.17388). Two channels that decay alike then have one complex decay,
    which can count modulo two, as decays above zero cannot. Angles start as those of rotary positions.

    Differences: the decay's bias starts at zero, as where the layer is trained for language. The norm of the
    output is an RMS norm, as in the authors' code, where the paper has a layer norm; the gate has no bias.
    The output projection starts at zero (docs/decisions/0002). Of Selective RoPE only the
    sum of angles is taken, without its further parts; here they are a linear map of the layer's input.
    """

    name = "gla"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="decay per key channel and token",
    )
    Settings = GLASettings
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, _ = self.memory_shape
        self.decay = LowRankDecay(
            layer.d_model,
            heads,
            key_dim,
            rank=settings.gate_rank,
            bias=settings.decay_bias,
            divisor=settings.gate_divisor,
        )

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        return matrix_state(q, k, v, log_decay=self.decay(x), state=memory)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the biases of decays and of angles."""
        biases = ("decay.project.up.bias", "selective.bias")
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name in biases}

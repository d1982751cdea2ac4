"""Kimi Delta Attention: the delta rule in a memory whose rows decay at rates of their own."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.kernels.gated_product import scale_rows
from linbench.kernels.matrix_state import Add, Delta, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.channel_decay import FLOOR, ChannelDecay, SignedDecay
from linbench.models.blocks.gates import ScalarDecay, WriteStrength
from linbench.models.blocks.heads import Readout, head_dims
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.starting_gates import DrawnGateSettings
from linbench.models.deltanet import DeltaSettings
from linbench.models.learner import Learner


class KDASettings(DrawnGateSettings, DeltaSettings):
    """Settings of KDA. Published: as DeltaNet, with a sigmoid gate on the output."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    gate_rank: int | None = Field(
        None,
        ge=1,
        description=(
            "rank of the maps that decay and output gate are computed with; null is the dimension of a head"
        ),
    )
    safe_decay: bool = Field(
        False, description="log decay within (-5, 0) by a sigmoid, instead of a softplus that knows no bound"
    )
    safe_start: Literal["shipped", "matched"] = Field(
        "shipped",
        description=(
            "how a safe decay starts: shipped has the biases of the softplus, matched its decays with A = 1,"
            " memories about five times as long"
        ),
        json_schema_extra={ABSENT: "shipped"},
    )
    signed_decay: Literal["none", "positive", "spread"] = Field(
        "none",
        description=(
            "decays in (-1, 1), of size e^-5 or more (2609.24797); positive says that all start above zero,"
            " spread that each starts with a random sign"
        ),
        json_schema_extra={ABSENT: "none"},
    )
    decay: Literal["channel", "head", "none"] = Field(
        "channel",
        description="whether each key channel has a decay, each head has one (Gated DeltaNet's), or none",
        json_schema_extra={ABSENT: "channel"},
    )
    erases: bool = Field(
        True,
        description="off, a write adds beta v and erases nothing, as in linear attention",
        json_schema_extra={ABSENT: True},
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.neg_eigval and not self.erases:
            raise ValueError("neg_eigval = true doubles what is erased, and erases = false erases nothing")
        if self.decay != "channel":
            for name, ordinary in (("safe_decay", False), ("signed_decay", "none")):
                if getattr(self, name) != ordinary:
                    raise ValueError(f"{name} is of decays of channels; decay = {self.decay} has none")
        if self.decay == "none" and self.forget_bias is not None:
            raise ValueError("forget_bias is where decays start; decay = none has none")
        return self

    @model_validator(mode="after")
    def _above_the_floor(self) -> Self:
        signed = self.signed_decay != "none"
        if self.safe_start == "matched" and not self.safe_decay:
            raise ValueError("safe_start = matched is a start of safe_decay = true")
        if signed and self.safe_decay:
            raise ValueError(
                f"safe_decay = true keeps decays positive; signed_decay = {self.signed_decay} has the same"
                " floor for their size"
            )
        if (self.safe_decay or signed) and self.rate is not None and self.rate >= FLOOR:
            name = "signed_decay" if signed else "safe_decay"
            raise ValueError(
                f"forget_bias = {self.forget_bias} keeps less of a token than {name}, e^-{FLOOR}"
            )
        return self


class KDA(MatrixMixer):
    """Kimi Delta Attention: the delta rule in a memory whose rows decay at rates of their own.

        S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)

    The decay a_t is Gated DeltaNet's with a number for each key channel. It acts first, so the delta rule
    predicts from what is left. Kimi Team 2025, arXiv:2510.26692.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: overwriting one association (the delta rule) while each key channel keeps for as long as it
    needs to; published to learn recall and stacks sooner than Gated DeltaNet. A softplus has no bound, so a
    channel can be wiped out at once; `safe_decay` is the published variant that keeps at least e^-5, whose
    published start forgets about five times sooner; `safe_start=matched` starts as the softplus does. With
    `signed_decay` decays may be negative (Complex KDA, Siems et al. 2026, arXiv:2609.24797). Together with
    `neg_eigval` a token can then turn two channels by any angle, so one layer tracks some groups that do not
    commute. Published runs of such tasks have `conv=0`, and so no SiLU on q, k and v.

    Each step from linear attention to KDA is a setting. With `decay=head` the decay is Gated DeltaNet's, with
    `decay=none` there is none; with `erases=false` a write adds beta_t k_t v_t^T to what the decay left, so
    that without a decay the memory is a sum. The others are `conv`, `qk_norm`, `output_gate`, `neg_eigval`.

    Differences: neither map of a gate has a bias; published code gives the output gate one, the paper does
    not. Decays are drawn in strata (docs/decisions/0003); the output projection starts at zero
    (docs/decisions/0002).
    """

    name = "kda"
    kernel_families = (*MatrixMixer.kernel_families, "decay_gate")
    generation = "delta rule"
    learner = Learner(
        loss="squared error",
        memory="matrix",
        optimiser="one gradient step",
        retention="decay per key channel and token",
    )
    Settings = KDASettings
    decays = True
    delta = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.make_strengths()
        self.decay = self.make_decay()
        self.decays, self.delta = settings.decay != "none", settings.erases

    def make_decay(self) -> ChannelDecay | ScalarDecay | None:
        """Return the decay that the settings name."""
        settings, width = self.settings, self.layer.d_model
        if settings.decay == "none":
            return None
        if settings.decay == "head":
            return ScalarDecay(width, settings.heads, settings)
        rank = settings.gate_rank or self.project.head_dim
        sizes = width, rank, settings.heads, self.project.key_dim
        if settings.signed_decay != "none":
            return SignedDecay(*sizes, spread=settings.signed_decay == "spread", settings=settings)
        matched = settings.safe_start == "matched"
        return ChannelDecay(*sizes, safe=settings.safe_decay, matched=matched, settings=settings)

    def make_strengths(self) -> None:
        """Make beta. Variants with other strengths override it."""
        self.beta = WriteStrength(
            self.layer.d_model, self.settings.heads, neg_eigval=self.settings.neg_eigval
        )

    def make_readout(self) -> Readout:
        """Return a readout whose gate has low rank."""
        _, value_dim = head_dims(self.settings, self.layer.d_model)
        return Readout(self.settings, self.layer, gate_rank=self.settings.gate_rank or value_dim)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation.

        With P_t the product of all signs so far, diag(P_t) S_t is the memory of P q and P k whose decays are
        positive.
        """
        beta = self.beta(x)
        if not self.settings.erases:
            v = scale_rows(v, beta)
        update = Delta(beta) if self.settings.erases else Add()
        if not isinstance(self.decay, SignedDecay):
            log_decay = None if self.decay is None else self.decay(x)
            return matrix_state(q, k, v, log_decay=log_decay, update=update, state=memory)
        log_size, negative = self.decay.signed(x)
        sign = (1 - 2 * (negative.cumsum(dim=1) % 2)).to(q.dtype)
        shared = v.shape[2] // k.shape[2]
        q, k = (sign * each.repeat_interleave(shared, dim=2) for each in (q, k))
        o, memory = matrix_state(q, k, v, log_decay=log_size, update=update, state=memory)
        return o, sign[:, -1, :, :, None] * memory

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters."""
        names = () if self.decay is None else ("decay.A_log", "decay.dt_bias")
        return {name: Rule(decay=False) for name in names}

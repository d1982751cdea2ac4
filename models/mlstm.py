"""mLSTM: a matrix memory with an exponential input gate, the layer of xLSTM-7B."""

import math
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32, to_float32
from linbench.models.base import LayerInfo, Out, StateSize
from linbench.models.blocks.denominator import normalised_matrix_state
from linbench.models.blocks.heads import (
    NO_CONVOLUTION,
    NO_QK_NORM,
    OUTPUT_NORM,
    OutputNorm,
    QKNorm,
    share_input,
)
from linbench.models.blocks.init import CPU, set_bias, zero_init
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.norms import HeadLayerNorm
from linbench.models.blocks.stabiliser import stabilise_gates
from linbench.models.blocks.starting_gates import GateSettings, logit
from linbench.models.learner import Learner


class MLSTMSettings(GateSettings, MatrixSettings):
    """Settings of the mLSTM.

    Published: keys half as wide as values, soft-capped gates, layer norm per head, sigmoid output gate; no
    convolution.
    """

    expand_k: float = Field(0.5, gt=0, description="total key width over d_model")
    conv: int = NO_CONVOLUTION
    qk_norm: QKNorm = NO_QK_NORM
    output_norm: OutputNorm = Field("layer", description=OUTPUT_NORM.description)
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    soft_cap: float | None = Field(
        15.0,
        gt=0,
        description=(
            "gates stay within it before their exponential or sigmoid, cap tanh(x / cap); null is none"
        ),
    )
    input_bias: float = Field(0.0, description="mean of the input gate's bias at the start")
    positions: Literal["none"] = Field("none", description="q and k are not rotated")

    @model_validator(mode="after")
    def _within_the_cap(self) -> Self:
        if (
            self.forget_bias is not None
            and self.soft_cap is not None
            and abs(self.forget_bias) >= self.soft_cap
        ):
            raise ValueError(f"forget_bias must be within soft_cap = {self.soft_cap}, not {self.forget_bias}")
        return self


class MLSTMState(NamedTuple):
    """State of the mLSTM.

    memory: [B, H, K, V+1], divided by e^maximum. maximum: [B, H]. Both in at least float32. conv: what the
    short convolution remembers, None without one.
    """

    memory: Tensor
    maximum: Tensor
    conv: Tensor | None


class MLSTM(MatrixMixer):
    """mLSTM: a matrix memory with an exponential input gate, the layer of xLSTM-7B.

        S_t = f_t S_{t-1} + i_t k_t v_t^T
        n_t = f_t n_{t-1} + i_t k_t
        o_t = S_t^T q_t / max(|n_t . q_t|, sqrt(K))

    Beck et al. 2024, arXiv:2405.04517; the layer is that of xLSTM-7B, 2503.13427. log i_t and the logit of
    f_t are linear in x_t and softly capped. S and n are kept divided by e^m, with m_t = max(log f_t +
    m_{t-1}, log i_t) and m_0 = 0; this changes only how much the 1e-6 counts that is added to the
    denominator.

    State: H K V, H K for the normaliser and H for m; constant in length.

    Known for: exponential gates, by which a late token can outweigh all before it. The decay is one positive
    number per head, so parity is impossible.

    Differences: gates start as in the first paper, whatever the token: forget biases from 3 to 6 over the
    heads, which the cap turns into forget gates from 0.951 to 0.997, memories of fourteen tokens and longer;
    and input biases N(0, 0.1), since the larger model's code sets none. With `conv` the convolution has no
    bias and also covers v, where the first paper's has one and covers q and k alone. The gates read the
    layer's input, and nothing of what surrounds the first paper's cell (wider stream, skip) is here. The
    output projection starts at zero (docs/decisions/0002).
    """

    name = "mlstm"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix, and a sum of keys that divides what is read",
        optimiser="one gradient step of length i",
        retention="decay per head and token",
    )
    Settings = MLSTMSettings
    decays = True
    epsilon: ClassVar[float] = 1e-6

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        if settings.output_norm == "layer":
            self.readout.norm = HeadLayerNorm(self.project.heads, self.project.value_dim, bias=False)
        self.forget = Affine(layer.d_model, settings.heads)
        self.input = Affine(layer.d_model, settings.heads)
        for gate in (self.forget, self.input):
            zero_init(gate)
        set_bias(
            self.forget, settings.start(torch.linspace(3, 6, settings.heads, device=CPU), self._bias_for)
        )
        nn.init.normal_(self.input.bias, settings.input_bias, 0.1)

    def _bias_for(self, rate: float) -> float:
        """Return b with -log sigmoid(cap tanh(b / cap)) = rate."""
        cap = self.settings.soft_cap
        return logit(rate) if cap is None else cap * math.atanh(logit(rate) / cap)

    @property
    def extra_columns(self) -> int:
        """1, for n as one more column of S."""
        return 1

    def forward(self, x: Tensor, state: Any = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says, with an `MLSTMState`."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        o, (memory, maximum) = self.recur(given, q, k, v, state and state[:2])
        return Out(self.readout(o, given), MLSTMState(memory, maximum, conv), cross_layer)

    def recur(self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Compute the equation. `memory` is the pair of S, with n as its last column, and m."""
        if memory is None:
            S, m = None, v.new_zeros(*v.shape[::2], dtype=at_least_float32(v.dtype))  # m [B, H]
        else:
            S, m = memory
        log_forget = F.logsigmoid(self._capped(self.forget(x.x)))
        log_input = self._capped(self.input(x.x))
        log_decay, strength, maximum = stabilise_gates(log_forget, log_input, m)

        def denominator(total: Tensor) -> Tensor:
            return torch.maximum(total.abs(), (-maximum).exp()[..., None]) + self.epsilon

        o, S = normalised_matrix_state(
            q,
            k,
            v,
            denominator,
            log_decay=log_decay,
            strength=strength,
            scale=q.shape[-1] ** -0.5,
            state=S,
        )
        return o, (S, maximum[:, -1].clone())

    def _capped(self, gate: Tensor) -> Tensor:
        gate, cap = to_float32(gate), self.settings.soft_cap
        return gate if cap is None else cap * torch.tanh(gate / cap)

    def init_state(self, batch: int, *, capacity: int) -> Any:
        """Return zeros."""
        start = super().init_state(batch, capacity=capacity)
        return MLSTMState(start.memory, start.memory.new_zeros(batch, self.project.heads), start.conv)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return the floats of S and n, and H for m."""
        return super().state_floats(seq_len).plus(StateSize(recurrent=self.project.heads))

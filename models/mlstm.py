"""mLSTM: a matrix memory with an exponential input gate, the layer of xLSTM-7B."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32, widened
from linbench.models.base import LayerInfo, Out, StateSize
from linbench.models.blocks.denominator import normalised_matrix_state
from linbench.models.blocks.heads import OUTPUT_NORM, OutputNorm, QKNorm, share_input
from linbench.models.blocks.init import CPU
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.norms import HeadLayerNorm
from linbench.models.blocks.stabiliser import stabilise_gates


class MLSTMSettings(MatrixSettings):
    """Published: keys half as wide as values, soft-capped gates, layer norm per head, sigmoid output gate; no
    convolution."""

    expand_k: float = Field(0.5, gt=0, description="total key width over d_model")
    conv: int = Field(
        0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    qk_norm: QKNorm = Field(
        "none", description="norm of q and k per head, the last thing before the recurrence"
    )
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


class MLSTMState(NamedTuple):
    """memory [B, H, K, V+1] divided by e^maximum, maximum [B, H], both in at least float32; what the short
    convolution remembers, None without one."""

    memory: Tensor
    maximum: Tensor
    conv: Tensor | None


class MLSTM(MatrixMixer):
    """S_t = f_t S_{t-1} + i_t k_t v_t^T,  n_t = f_t n_{t-1} + i_t k_t,  o_t = S_t^T q_t / max(|n_t . q_t|,
    sqrt(K)).

    Beck et al. 2024, arXiv:2405.04517; the layer is that of xLSTM-7B, 2503.13427. log i_t and the logit of
    f_t are linear in x_t and softly capped. S and n are kept divided by e^m, with m_t = max(log f_t +
    m_{t-1}, log i_t) and m_0 = 0, which changes nothing but how much the 1e-6 counts that is added to the
    denominator.

    State: H K V, H K for the normaliser and H for m; constant in length.
    Known for: exponential gates, by which a late token can outweigh all before it. The decay is one positive
    number per head, so parity is out of reach. Gates start as in the first paper, whatever the token: forget
    biases from 3 to 6 over the heads, which the cap makes forget gates from 0.951 to 0.997, memories of
    fourteen tokens and longer, and input biases N(0, 0.1), since the larger model's code sets none. With
    `conv` the convolution has no bias and takes v, too, where the first paper's has one and makes q and k
    alone. The gates read the layer's input, and of what is around the first paper's cell (wider stream, skip)
    there is nothing. The output projection starts at zero (docs/decisions/0002).
    """

    name = "mlstm"
    generation = "gates and decay"
    Settings = MLSTMSettings
    decays = True
    epsilon: ClassVar[float] = 1e-6

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        if settings.output_norm == "layer":
            self.readout.norm = HeadLayerNorm(self.project.heads, self.project.value_dim, bias=False)
        self.forget, self.input = Affine(layer.d_model, settings.heads), Affine(layer.d_model, settings.heads)
        for gate in (self.forget, self.input):
            nn.init.zeros_(gate.weight)
        with torch.no_grad():
            self.forget.bias.copy_(torch.linspace(3, 6, settings.heads, device=CPU))
        nn.init.normal_(self.input.bias, settings.input_bias, 0.1)

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The normaliser n is one more column of S."""
        heads, key_dim, value_dim = super().memory_shape
        return heads, key_dim, value_dim + 1

    def forward(self, x: Tensor, state: Any = None, handed: Any = None) -> Out:
        """As `Mixer.forward`, with an `MLSTMState`."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        o, (memory, maximum) = self.recur(given, q, k, v, state and state[:2])
        return Out(self.readout(o, given), MLSTMState(memory, maximum, conv), handed)

    def recur(self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """The equation. `memory` is S with n beside it, and m."""
        held, before = memory or (None, v.new_zeros(*v.shape[::2], dtype=at_least_float32(v.dtype)))
        forget, write = (self._capped(gate(x.x)) for gate in (self.forget, self.input))
        log_decay, strength, maximum = stabilise_gates(F.logsigmoid(forget), write, before)

        def denominator(total: Tensor) -> Tensor:
            return torch.maximum(total.abs(), (-maximum).exp()[..., None]) + self.epsilon

        o, held = normalised_matrix_state(
            q,
            k * strength[..., None],
            v,
            denominator,
            log_decay=log_decay,
            scale=q.shape[-1] ** -0.5,
            state=held,
        )
        return o, (held, maximum[:, -1].clone())

    def _capped(self, gate: Tensor) -> Tensor:
        """In at least float32."""
        gate, cap = widened(gate), self.settings.soft_cap
        return gate if cap is None else cap * torch.tanh(gate / cap)

    def init_state(self, batch: int, *, capacity: int) -> Any:
        """Zeros, as everywhere."""
        start = super().init_state(batch, capacity=capacity)
        return MLSTMState(start.memory, start.memory.new_zeros(batch, self.project.heads), start.conv)

    def state_floats(self, seq_len: int) -> StateSize:
        """And H for m."""
        return super().state_floats(seq_len).plus(StateSize(recurrent=self.project.heads))

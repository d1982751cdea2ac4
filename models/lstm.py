"""LSTM: the classical gated recurrent network, as a control."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import without_autocast
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.heads import FAMILIES, inner_width
from linbench.models.blocks.init import BranchSettings, keep, zero_init
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.starting_gates import GateSettings, logit
from linbench.models.learner import Learner


class LSTMSettings(GateSettings, BranchSettings):
    """Settings of the LSTM. Classical: nothing around the cell."""

    expand: float = Field(1.0, gt=0, description="width of the cell over d_model")
    conv: int = INPUT_CONVOLUTION
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the cell's output")


class LSTMState(NamedTuple):
    """State of the LSTM.

    memory: c and h [B, 2, W] in at least float32. conv: what the short convolution remembers [B, kernel-1,
    D], None without one.
    """

    memory: Tensor
    conv: Tensor | None


class LSTM(Mixer):
    """LSTM: the classical gated recurrent network, as a control.

        c_t = sigmoid(f_t) * c_{t-1} + sigmoid(i_t) * tanh(g_t)
        h_t = sigmoid(o_t) * tanh(c_t)
        (i, f, g, o)_t = W x_t + U h_{t-1} + b
        y_t = W_o h_t

    Hochreiter & Schmidhuber 1997, Neural Computation 9(8), with the forget gate of Gers, Schmidhuber &
    Cummins 2000, Neural Computation 12(10); it is older than arXiv.

    State: c and h, 2 W floats, constant in length.

    Known for: gates that read the memory, so that it tracks states which linear recurrences with positive
    diagonal transitions cannot. Its memory is a vector, which limits recall, and its steps must be taken one
    after the other, which is slow.

    Differences: the output projection, which the classical cell does not have, starts at zero
    (docs/decisions/0002). The forget gate's bias starts at 1, the others' at 0.
    """

    name = "lstm"
    learner = Learner(
        loss="none: gates choose what is written",
        memory="a vector that also makes its own gates",
        optimiser="none: gated sums",
        retention="decay per unit and token",
    )
    kernel_families = FAMILIES
    Settings = LSTMSettings
    controlled: ClassVar[dict[str, Any] | None] = {"expand": 1.0, "conv": 4, "output_norm": "rms"}

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.width = inner_width(settings.expand, layer.d_model)
        self.conv = InputConvolution(layer.d_model, settings.conv)
        self.project = keep(Linear(layer.d_model, 4 * self.width))
        self.recurrent = nn.Linear(self.width, 4 * self.width)
        nn.init.zeros_(self.recurrent.bias)
        forget = self.recurrent.bias.data[self.width : 2 * self.width]
        forget.copy_(settings.start(torch.ones_like(forget), logit))
        self.norm = RMSNorm(self.width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Linear(self.width, layer.d_model), silent=settings.silent)

    def forward(self, x: Tensor, state: LSTMState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        inner, conv = self.conv(x, state and state.conv)
        gates = self.project(inner)
        wide = at_least_float32(gates.dtype)
        if state is None:
            c = h = gates.new_zeros(x.shape[0], self.width, dtype=wide)
        else:
            c, h = state.memory.to(wide).unbind(dim=1)
        U, b, outputs = self.recurrent.weight.to(wide), self.recurrent.bias.to(wide), []
        with without_autocast(x):
            for gate in (gates.to(wide) + b).unbind(dim=1):
                i, f, g, o = (gate + F.linear(h, U)).chunk(4, dim=-1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                outputs.append(h)
        y = torch.stack(outputs, dim=1).to(gates.dtype)
        y = y if self.norm is None else self.norm(y)
        return Out(self.linear(y), LSTMState(torch.stack([c, h], dim=1), conv), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> LSTMState:
        """Return zeros; the size does not depend on `capacity`."""
        weight = self.linear.weight
        memory = weight.new_zeros(batch, 2, self.width, dtype=at_least_float32(weight.dtype))
        return LSTMState(memory, self.conv.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return 2 W for the cell and (kernel - 1) D for the convolution."""
        return StateSize(recurrent=2 * self.width, convolution=self.conv.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the gates' products; U h counts with the linear layers."""
        return 4.0 * self.width

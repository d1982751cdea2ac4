"""Longhorn: every channel takes the best step towards its input, a delta rule with an implicit step."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import Delta, flops_per_token, matrix_state
from linbench.kernels.scan import scan
from linbench.models.base import Rule
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.selective import SelectiveMixer, SelectiveSettings
from linbench.models.blocks.starting_gates import draw_dt_bias
from linbench.models.learner import Learner


class LonghornSettings(SelectiveSettings):
    """Settings of Longhorn.

    Published: Mamba's block, 16 states per channel, erasing along each state alone.
    """

    erase: Literal["diagonal", "key"] = Field(
        "diagonal",
        description=(
            "what a write erases: along each state alone, as published code does for speed, or along the key"
            " as the exact solution does"
        ),
    )


class Longhorn(SelectiveMixer):
    """Longhorn: every channel takes the best step towards its input, a delta rule with an implicit step.

        h_t = argmin_h  |h - h_{t-1}|^2 + b_t (h . k_t - x_t)^2       for each channel
            = h_{t-1} + e_t (x_t - h_{t-1} . k_t) k_t,   e_t = b_t / (1 + b_t |k_t|^2)
        y_t = h_t . q_t + D x_t
        b_t = sigmoid(W_2 W_1 x_t + c)

    x is the layer's input after a linear map and the short convolution; k and q are computed from it and are
    the same for all channels. Liu et al. 2024, arXiv:2407.14207. The error is judged after the step and not
    before it, so that e_t |k_t|^2 stays below one whatever the length of keys, which need no norm. As
    published only the diagonal of what is erased is kept (`erase`): h_t = (1 - e_t k_t^2) h_{t-1} + e_t x_t
    k_t, element by element, whose decay is no parameter but follows from the key.

    State: W N, 16 times the 2 D channels as published, constant in length; the convolution keeps 3 inputs per
    channel.

    Known for: Mamba's block without its decays: a token forgets just what it writes over, and published
    models read contexts 16 times as long as those of training.

    Differences: published models have no channel mixer between their layers (`channel_mixer=own`). c starts
    as Mamba's steps do, in strata (docs/decisions/0003), b from about 0.001 to 0.1; what published code
    starts at is not verified. The output projection starts at zero (docs/decisions/0002). The controlled form
    is Mamba's.
    """

    name = "longhorn"
    kernel_families: ClassVar[tuple[str, ...]] = ("matrix_state", "scan", *FAMILIES)
    generation = "test-time training"
    learner = Learner(
        loss="squared error",
        memory="matrix of channels by states",
        optimiser="one implicit step, of which the diagonal is kept",
        retention="no decay: a write erases where its key is large",
    )
    Settings = LonghornSettings
    controlled: ClassVar[dict[str, Any] | None] = SelectiveMixer.controlled

    def start_steps(self, width: int) -> Tensor:
        """Return biases of which a sigmoid is nearly log-uniform in (0.001, 0.1)."""
        return draw_dt_bias(width, strata=True)

    def recur(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        logits, k, q = self.select(u)
        wide, beta, k, q = to_float32(u), torch.sigmoid(logits), to_float32(k), to_float32(q)
        length = k.square().sum(dim=-1, keepdim=True)
        step = beta / (1 + beta * length)
        if self.settings.erase == "key":  # a head of one value for each channel
            o, memory = matrix_state(
                q[:, :, None],
                k[:, :, None],
                wide[..., None],
                update=Delta(step, neg_eigval=False),
                scale=1.0,
                state=None if memory is None else memory[..., None],
            )
            return o[..., 0].to(u.dtype), memory[..., 0]
        others = (length - k.square()).clamp(min=0)[:, :, None]  # 1 - e k_n^2, without a difference:
        left = (1 + beta[..., None] * others) / (1 + beta * length)[..., None]
        written = (step * wide)[..., None] * k[:, :, None]
        state = None if memory is None else memory.flatten(1)
        h, last = scan(left.flatten(2), written.flatten(2), state)
        o = (h.view_as(left) * q[:, :, None]).sum(dim=-1)
        return o.to(u.dtype), last.view(-1, *self.memory_shape)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, its steps, the skip and the gate."""
        width, states = self.memory_shape
        if self.settings.erase == "key":
            recurrence = flops_per_token(heads=width, key_dim=states, value_dim=1, decay=False, delta=True)
        else:
            recurrence = width * (8 * states + 1)  # what is left, what is written, the sum, and reading
        return float(recurrence + 4 * width + self.around_flops())

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the steps' bias and the skip."""
        return {
            name: Rule(decay=False) for name in ("step.up.bias", *([] if self.skip is None else ["skip"]))
        }

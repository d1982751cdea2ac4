"""Gated DeltaNet-2: KDA that chooses for each channel what to erase and what to write."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.blocks.gates import WriteStrength
from linbench.models.blocks.linear import SharedInput
from linbench.models.kda import KDA, KDASettings


class GatedDeltaNet2Settings(KDASettings):
    """Settings of Gated DeltaNet-2. Published: as KDA."""

    neg_eigval: bool = Field(
        False, description="b in (0, 2) instead of (0, 1): what is erased can change its sign (2411.12537)"
    )
    signed_decay: Literal["none"] = Field(
        "none", description="none: decays are positive", json_schema_extra={ABSENT: "none"}
    )
    decay: Literal["channel"] = Field(
        "channel", description="channel: a decay for each key channel", json_schema_extra={ABSENT: "channel"}
    )
    erases: Literal[True] = Field(
        True, description="true: a write erases first", json_schema_extra={ABSENT: True}
    )


class GatedDeltaNet2(KDA):
    """Gated DeltaNet-2: KDA that chooses for each channel what to erase and what to write.

        S_t = (I - k_t (b_t * k_t)^T) diag(a_t) S_{t-1} + k_t (w_t * v_t)^T
        o_t = S_t^T q_t / sqrt(K)

    The erase gate b_t = sigmoid(W_b x_t) has a number for each channel of the key, and the write gate
    w_t = sigmoid(W_w x_t) one for each channel of the value; * is element by element. The decay a_t is KDA's.
    Hatamizadeh, Choi & Kautz 2026, arXiv:2605.22791.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: two gates where other delta rules have one strength for both; published to find needles in text
    more often than KDA. With b = w = beta in all channels it is KDA. If b differs between channels,
    I - k (b * k)^T can lengthen a vector, so only the decay bounds the memory.

    Differences: those of `kda`. With `key_heads` a decay stays apart for every head of values; published code
    has one for each head of keys, as of b here.
    """

    name = "gated_deltanet2"
    learner = KDA.learner._replace(
        loss="squared error of gated values",
        optimiser="one gradient step that erases under another key than it writes",
    )
    Settings = GatedDeltaNet2Settings

    def make_strengths(self) -> None:
        """Make the erase gate and the write gate."""
        width, (heads, key_dim, value_dim) = self.layer.d_model, self.memory_shape
        self.erase = WriteStrength(width, self.key_heads * key_dim, neg_eigval=self.settings.neg_eigval)
        self.write = WriteStrength(width, heads * value_dim, neg_eigval=False)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        erased = (self.erase(x).view_as(k) * k).to(k.dtype)
        written = (self.write(x).view_as(v) * v).to(v.dtype)
        update = Delta(v.new_ones(v.shape[:3]), erased)
        assert self.decay, "its only decays are those of channels"
        return matrix_state(q, k, written, log_decay=self.decay(x), update=update, state=memory)

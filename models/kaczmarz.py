"""Kaczmarz linear attention: a gated delta rule whose step is divided by the square of the key's length."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.kernels.norms import l2_norm
from linbench.models.blocks.heads import QKNorm
from linbench.models.blocks.linear import SharedInput
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings


class KaczmarzSettings(GatedDeltaNetSettings):
    """Settings of Kaczmarz linear attention. Published: as Gated DeltaNet, without a norm of keys."""

    qk_norm: QKNorm = Field(
        "none", description="norm of q and k per head, the last thing before the recurrence"
    )
    query_norm: Literal["l2", "none"] = Field("l2", description="norm of q alone, per head")
    epsilon: float = Field(1e-6, gt=0, description="what is added to the square of a key's length")


class Kaczmarz(GatedDeltaNet):
    """Kaczmarz linear attention: a gated delta rule whose step is divided by the square of the key's length.

        S_t = a_t S_{t-1} + beta_t k_t (v_t - a_t S_{t-1}^T k_t)^T,   beta_t = eta_t / (|k_t|^2 + 1e-6)
        o_t = S_t^T q_t / sqrt(K)

    With eta = 1 this is Kaczmarz's projection: of all memories that recall v_t at k_t, the nearest. The decay
    a_t is Gated DeltaNet's, eta_t a sigmoid of the token, one per head. Zou, Ren & Liu 2026,
    arXiv:2605.08587.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: taking the right step whatever the length of keys. It is Gated DeltaNet with keys k / r and
    values v / r, for r^2 = |k|^2 + 1e-6: what it adds is that a token writes the more, the shorter its key.

    Differences: only the abstract could be read. That eta is a sigmoid, that q has unit length (`query_norm`)
    and the 1e-6 are this file's choices; the rest is as in `gated_deltanet`. In the controlled form, too,
    keys have no norm: with one it would be Gated DeltaNet.
    """

    name = "kaczmarz"
    generation = "test-time training"
    learner = GatedDeltaNet.learner._replace(
        optimiser="one gradient step of length eta / k . k: with eta = 1 the error is zero"
    )
    Settings = KaczmarzSettings
    controlled: ClassVar[dict[str, Any] | None] = {**(GatedDeltaNet.controlled or {}), "qk_norm": "none"}

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation, with k / |k| for keys and v / |k| for values, which stay in range."""
        length = (to_float32(k).square().sum(dim=-1, keepdim=True) + self.settings.epsilon).sqrt()
        k, of_values = (k / length).to(k.dtype), length.repeat_interleave(v.shape[2] // k.shape[2], dim=2)
        update = Delta(self.beta(x), neg_eigval=self.settings.neg_eigval)
        q, v = l2_norm(q) if self.settings.query_norm == "l2" else q, (v / of_values).to(v.dtype)
        return matrix_state(q, k, v, log_decay=self.decay(x), update=update, state=memory)

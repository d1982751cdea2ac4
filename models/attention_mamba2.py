"""Falcon-H1's layer: attention and Mamba-2 side by side, whose outputs are added."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.base import Mixer
from linbench.models.blocks.caches import Tokens
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.side_by_side import SideBySide, SideBySideSettings
from linbench.models.mamba2 import Mamba2


class AttentionMamba2Settings(SideBySideSettings):
    """Settings of Falcon-H1's layer. Published: rotary positions, Mamba-2 as it was published."""

    ssm_expand: float = Field(2.0, gt=0, description="inner width of Mamba-2 over the total key width")
    groups: int | None = Field(
        1,
        ge=1,
        description="how many B and C Mamba-2 has, each for as many heads; null is one for each head",
    )
    ssm_qk_norm: Literal["none", "l2", "rms"] = Field("none", description="norm of Mamba-2's C and B")
    ssm_norm: Literal["none", "rms", "rms_all"] = Field(
        "rms_all", description="norm of what Mamba-2 reads, after its gate"
    )


class AttentionMamba2(SideBySide):
    """Falcon-H1's layer: attention and Mamba-2 read the same input, and their outputs are added.

        y_t = W_o o_t + m_t
        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s   for all heads, side by side
        m_t = the output of `mamba2` for x_t

    Zuo et al. 2025, arXiv:2507.22448.

    State: a cache of Hk (K + V) floats per token seen, at most w tokens with a window, and that of `mamba2`:
    H K V for its memory, and 3 inputs per channel of its convolution.

    Known for: both kinds of memory in every layer, in shares that can be chosen: published models have more
    channels of Mamba-2 than of attention.

    Differences: both have as many heads here, and keys as wide. The source's fixed factors on its maps are
    left out. Decays are drawn in strata (docs/decisions/0003); the output projections start at zero
    (docs/decisions/0002). In the controlled form Mamba-2 is as in its own.
    """

    name = "attention_mamba2"
    kernel_families: ClassVar[tuple[str, ...]] = ("attention", "rotary", "matrix_state", *FAMILIES)
    learner = Attention.learner._replace(
        memory="every key and value, beside Mamba-2's matrix",
        retention="keeps all, or the last w tokens; Mamba-2's decay per head and token",
    )
    Settings = AttentionMamba2Settings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(SideBySide.controlled or {}),
        "ssm_expand": 1.0,
        "groups": None,
        "ssm_qk_norm": "l2",
        "ssm_norm": "rms",
    }

    def make_beside(self) -> Mixer:
        """Return Mamba-2."""
        settings = self.settings
        return Mamba2(
            Mamba2.Settings(
                heads=settings.heads,
                head_dim=settings.head_dim,
                expand_k=settings.expand_k,
                expand_v=settings.ssm_expand * settings.expand_k,
                groups=settings.groups,
                qk_norm=settings.ssm_qk_norm,
                output_norm=settings.ssm_norm,
                silent=settings.silent,
                **self.beside_settings(),
            ),
            self.layer,
        )

    def join(self, attended: Tensor, read: Tensor) -> Tensor:
        """Return what attention read: the output of Mamba-2 is added after the map that follows."""
        return attended

    def _attend(self, new: Tokens, *keys_and_values: Any) -> Tensor:
        """Return the layer's output: attention's plus that of Mamba-2."""
        y: Tensor = super()._attend(new, *keys_and_values) + new.more.o
        return y

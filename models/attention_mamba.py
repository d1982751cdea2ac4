"""Hymba's layer: heads of attention and of Mamba side by side, which share the maps in and out."""

from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.side_by_side import SideBySide, SideBySideSettings
from linbench.models.mamba import Mamba


class AttentionMambaSettings(SideBySideSettings):
    """Settings of Hymba's layer. Published: rotary positions, Mamba with 16 states per channel."""

    states: int = Field(16, ge=1, description="how many numbers each channel of Mamba remembers")


class AttentionMamba(SideBySide):
    """Hymba's layer: heads of attention and of Mamba read the same input, and the mean of both goes out.

        y_t = W_o (n_1(o_t) + n_2(m_t)) / 2
        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s   for all heads, side by side
        m_t = what `mamba` reads of x_t, after its gate

    n_1 and n_2 are RMS norms over all channels, whose weights scale each channel of the two. m is as wide as
    o. Dong et al. 2024, arXiv:2411.13676.

    State: a cache of Hk (K + V) floats per token seen, at most w tokens with a window, and H V N for Mamba's
    memory; its convolution keeps 3 inputs per channel.

    Known for: sharp recall by attention beside a summary of everything by Mamba, in one layer. Hymba has all
    of attention in three layers and a window in all others, which is the system `hymba`.

    Differences: no learned tokens precede the sequence, and no layers share keys and values. Steps are drawn
    in strata (docs/decisions/0003); the output projection starts at zero (docs/decisions/0002). In the
    controlled form the norm of every variant follows the mean of the two.
    """

    name = "attention_mamba"
    kernel_families: ClassVar[tuple[str, ...]] = ("attention", "rotary", "selective_scan", "scan", *FAMILIES)
    learner = Attention.learner._replace(
        memory="every key and value, beside Mamba's matrix of channels by states",
        retention="keeps all, or the last w tokens; Mamba's decay per entry and token",
    )
    Settings = AttentionMambaSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width = self.project.heads * self.project.value_dim
        self.attention_norm, self.beside_norm = RMSNorm(width), RMSNorm(width)

    def make_beside(self) -> Mixer:
        """Return Mamba without its last map."""
        settings, width = self.settings, self.project.heads * self.project.value_dim
        mamba = Mamba(
            Mamba.Settings(
                expand=width / self.layer.d_model,
                states=settings.states,
                **self.beside_settings(),
            ),
            self.layer,
        )
        mamba.linear = nn.Identity()  # type: ignore[assignment]
        return mamba

    def join(self, attended: Tensor, read: Tensor) -> Tensor:
        """Return the mean of what attention and Mamba read, each after its norm [B, T, H, V]."""
        mean: Tensor = (self.attention_norm(attended.flatten(-2)) + self.beside_norm(read)) / 2
        return mean.view(attended.shape)

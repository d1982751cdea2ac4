"""Softmax attention: keeps every key and value and reads all of them."""

from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from linbench.common.settings import Settings
from linbench.kernels.attention import Weigh, attention
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.cached_attention import CachedAttention
from linbench.models.blocks.caches import Tokens
from linbench.models.blocks.heads import CONTROLLED, FAMILIES
from linbench.models.learner import WEIGHTED_MEAN

_STEPS = ("decode", "_project_tokens", "turn", "_read_beside", "_append", "_attend_cache", "_attend", "read")
"""Methods of attention for which a launch of one more token stands."""


class Attention(CachedAttention):
    """Softmax attention: reads all earlier tokens, weighted by how well their keys match the query.

        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s

    Vaswani et al. 2017, arXiv:1706.03762; rotary positions (2104.09864), ALiBi (2108.12409) or none;
    optionally a sliding window of w keys, itself included (2310.06825), and fewer heads of keys and values
    than of queries: one (multi-query, 1911.02150) or more (grouped-query, 2305.13245). Qwen3's norm of q and
    k (2505.09388) is qk_norm=rms.

    State: a cache of Hk (K + V) floats per token seen, for Hk heads of keys and values, at most w tokens with
    a window.

    Known for: exact recall of everything that it keeps, at a cost that grows with length.

    Differences: the output projection starts at zero (docs/decisions/0002). In the controlled form it has the
    short convolution of all variants instead of positions, and the l2 norm of q and k comes with a learned
    scale per head from sqrt(K) on (2010.04245): scores within 1/sqrt(K) of zero could not select a key.
    """

    name = "attention"
    kernel_families: ClassVar[tuple[str, ...]] = ("attention", "rotary", *FAMILIES)
    generation = "softmax"
    learner = WEIGHTED_MEAN
    Settings: ClassVar[type[Settings]] = AttentionSettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "positions": "none", "kv_heads": None}
    weigh: Weigh = "softmax"

    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute the equation: return o [B, T, H, V], of the arguments of `_attend`.

        Variants with other scores override it. Empty places hold zeros.
        """
        return attention(
            *(new.q, keys, values),
            window=self.settings.window,
            slopes=self.slopes,
            kept=log_forget_sums,
            weigh=self.weigh,
            **self.asked_of(new, key_positions),
        )

    @cached_property
    def is_plain(self) -> bool:
        """Return whether tokens are turned, kept and read as here, and not by steps of a variant's own."""
        mine = type(self)
        return self.weigh == "softmax" and all(
            getattr(mine, name) is getattr(Attention, name) for name in _STEPS
        )

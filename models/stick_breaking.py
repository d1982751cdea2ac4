"""Stick-breaking attention: near keys take their share first, and what is left goes further back."""

from typing import ClassVar

from torch import Tensor

from linbench.kernels.attention.stick_breaking import stick_breaking
from linbench.models.attention import Attention
from linbench.models.blocks.attention_settings import WholeSettings
from linbench.models.blocks.caches import Tokens


class StickBreaking(Attention):
    """Stick-breaking attention: going back from a query, each key takes its share of what is left of a stick.

        o_t = sum_{s < t} sigmoid(z_ts) prod_{s < l < t} (1 - sigmoid(z_tl)) v_s
        z_ts = q_t . k_s / sqrt(K)

    Tan et al. 2024, arXiv:2410.17980. There are no positions: of two equal keys the later one takes more. A
    token does not see itself, so that the first one reads nothing, and weights sum to at most one.

    State: a cache of H (K + V) floats per token seen.

    Known for: lengths beyond those of training, and the latest of several matches. At the start every share
    is a half, and weights fall by half with every token.

    Differences: what no key takes is dropped, as in flash-linear-attention; the authors' language models give
    it to a learned vector per head and norm each head's output. The output projection starts at zero
    (docs/decisions/0002). The controlled form is that of attention: l2 norm of q and k with a learned scale.
    """

    name = "stick_breaking"
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        loss="squared error of a constant, weighted by match and nearness; the rest of the weight is on zero",
        retention="keeps all",
    )
    Settings: ClassVar[type[WholeSettings]] = WholeSettings

    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute the equation."""
        return stick_breaking(new.q, keys, values, **self.asked_of(new, key_positions))

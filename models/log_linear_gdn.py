"""Log-linear Gated DeltaNet: a gated delta rule for each span of a Fenwick tree over the past."""

from torch import Tensor

from linbench.kernels.matrix_state import Delta
from linbench.models.blocks.levels import Levels, LevelSettings, LogLinear
from linbench.models.blocks.linear import SharedInput
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings


class LogLinearGDNSettings(LevelSettings, GatedDeltaNetSettings):
    """Settings of log-linear Gated DeltaNet. Published: as Gated DeltaNet, with 15 levels."""


class LogLinearGDN(LogLinear, GatedDeltaNet):
    """Log-linear Gated DeltaNet: a gated delta rule for each span of a Fenwick tree over the past.

        S_{l,t} = a_t (I - beta_t k_t k_t^T) S_{l,t-1}   for levels l > 0, which hold earlier tokens
        S_{0,t} = beta_t k_t v_t^T
        o_t = sum_l lambda_{l,t} S_{l,t}^T q_t / sqrt(K),   lambda_{l,t} = softplus(c_l w_l . x_t)

    Tokens count from 0. Before token t > 0 all levels below b + 1 are added into level b + 1 and emptied,
    where b is the lowest bit of t that is one: level l > 0 holds 2^(l-1) tokens or none. c and w are per
    head. Guo et al. 2025, arXiv:2506.04761.

    State: H K V for each of ceil(log2 T) levels, at least one, for sequences of T tokens. Level 0 is not
    kept, since no later token reads it. The convolution keeps 3 inputs per channel.

    Known for: a memory that grows with the logarithm of the length, and has more room for near tokens than
    for far ones. With all lambda = 1 it is Gated DeltaNet; lambda starts at about 0.7. Which tokens a level
    holds depends on t, so padding before a sequence changes it.

    Differences: the memory of a level here holds its tokens from the first of them on, before published
    models move their sum there; what is read is the same. So a level costs what Gated DeltaNet costs, in
    training, too. Sequences may be longer than 2^(levels - 1) tokens: further levels share the last lambda,
    where published models have none. The rest is as in `gated_deltanet`.
    """

    name = "log_linear_gdn"
    learner = GatedDeltaNet.learner._replace(
        memory="log2 T matrices, each for a span of tokens, the nearer the shorter"
    )
    Settings = LogLinearGDNSettings

    def recur_levels(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, levels: Levels
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        return levels.recall(
            q,
            k,
            v,
            self.level_weights(x, levels.number),
            log_decay=self.decay(x),
            update=Delta(self.beta(x), neg_eigval=self.settings.reflects),
            scale=q.shape[-1] ** -0.5,
        )

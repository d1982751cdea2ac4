"""Log-linear Mamba-2: a state space for each span of a Fenwick tree over the past."""

from torch import Tensor

from linbench.kernels.gated_product import scale_rows
from linbench.kernels.matrix_state import Add
from linbench.models.blocks.levels import Levels, LevelSettings, LogLinear
from linbench.models.blocks.linear import SharedInput
from linbench.models.mamba2 import Mamba2, Mamba2Settings


class LogLinearMamba2Settings(LevelSettings, Mamba2Settings):
    """Settings of log-linear Mamba-2. Published: as Mamba-2, with 15 levels."""


class LogLinearMamba2(LogLinear, Mamba2):
    """Log-linear Mamba-2: a state space for each span of a Fenwick tree over the past.

        S_{l,t} = exp(A d_t) S_{l,t-1}   for levels l > 0, which hold earlier tokens
        S_{0,t} = B_t (d_t x_t)^T
        y_t = sum_l lambda_{l,t} S_{l,t}^T C_t + D x_t,   lambda_{l,t} = softplus(c_l w_l . u_t)

    Tokens count from 0. Before token t > 0 all levels below b + 1 are added into level b + 1 and emptied,
    where b is the lowest bit of t that is one: level l > 0 holds 2^(l-1) tokens or none. c and w are per
    head. Guo et al. 2025, arXiv:2506.04761.

    State: H K V for each of ceil(log2 T) levels, at least one, for sequences of T tokens. Level 0 is not
    kept, since no later token reads it. The convolution keeps 3 inputs per channel.

    Known for: Mamba-2 whose tokens weigh the past by its distance, in steps of powers of two, at a cost of
    T log T. With all lambda = 1 it is Mamba-2; lambda starts at about 0.7. Which tokens a level holds depends
    on t, so padding before a sequence changes it.

    Differences: those of `log_linear_gdn`, and the rest is as in `mamba2`.
    """

    name = "log_linear_mamba2"
    learner = Mamba2.learner._replace(
        memory="log2 T matrices, each for a span of tokens, the nearer the shorter"
    )
    Settings = LogLinearMamba2Settings

    def recur_levels(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, levels: Levels
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        log_decay, step = self.decay.with_step(x)
        o, memory = levels.recall(
            q,
            k,
            scale_rows(v, step),
            self.level_weights(x, levels.number),
            log_decay=log_decay,
            update=Add(),
            scale=1.0,
        )
        return self.add_skip(o, v), memory

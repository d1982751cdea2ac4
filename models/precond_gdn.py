"""Preconditioned Gated DeltaNet: a gated delta rule that writes less where keys have often been."""

from linbench.models.blocks.preconditioner import Preconditioned, PreconditionedSettings
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings


class PrecondGDNSettings(PreconditionedSettings, GatedDeltaNetSettings):
    """Settings of preconditioned Gated DeltaNet. Published: as Gated DeltaNet."""


class PrecondGDN(Preconditioned, GatedDeltaNet):
    """Preconditioned Gated DeltaNet: a gated delta rule that writes less where keys have often been.

        S_t = a_t (I - beta_t M_t k_t k_t^T) S_{t-1} + beta_t M_t k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)
        A_t = a'_t A_{t-1} + b_t k_t * k_t
        M_t = 1.5^(-r_t / (1 + |r_t|)),   r_t = log(A_t + 1e-6) - c

    M_t is a diagonal matrix, * is element by element; the decays a_t and a'_t are of Mamba-2's kind, b_t is a
    sigmoid of the token, c is learned. Tumma, Loo & Rus 2026, arXiv:2604.21100.

    State: H K (V + 1), constant in length: S, and A as one more column of it. The convolution keeps 3 inputs
    per channel.

    Known for: a step towards least squares at the price of a vector. A estimates how much the keys of the
    past point along each channel, as the diagonal of the matrix that MesaNet inverts; a channel that is used
    much is written less, by a factor within (1 / 1.5, 1.5) (`limit`). With limit = 1 it is Gated DeltaNet.
    Since A of unit keys is about 1 / K, c stands for another centre in wide heads than in narrow ones.

    Differences: A is kept once for each head of values, too, where several share a key; it is the same for
    them. beta stays below one, where published code may double it: with M the memory could then grow. As in
    Gated DeltaNet, A ~ U(1, 16) in strata (docs/decisions/0003) and the output projection starts at zero
    (docs/decisions/0002). `forget_bias` is where both decays start.
    """

    name = "precond_gdn"
    kernel_families = (*GatedDeltaNet.kernel_families, "scan")
    generation = "test-time training"
    learner = GatedDeltaNet.learner._replace(optimiser="one gradient step, preconditioned by channel")
    Settings = PrecondGDNSettings

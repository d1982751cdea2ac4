"""Preconditioned KDA: writes less where keys have often been, and forgets each channel at its own rate."""

from typing import Literal

from pydantic import Field

from linbench.common.settings import ABSENT
from linbench.models.blocks.preconditioner import Preconditioned, PreconditionedSettings
from linbench.models.kda import KDA, KDASettings


class PrecondKDASettings(PreconditionedSettings, KDASettings):
    """Settings of preconditioned KDA. Published: as KDA."""

    signed_decay: Literal["none"] = Field(
        "none", description="none: decays are positive", json_schema_extra={ABSENT: "none"}
    )
    decay: Literal["channel"] = Field(
        "channel", description="channel: a decay for each key channel", json_schema_extra={ABSENT: "channel"}
    )
    erases: Literal[True] = Field(
        True, description="true: a write erases first", json_schema_extra={ABSENT: True}
    )


class PrecondKDA(Preconditioned, KDA):
    """Preconditioned KDA: writes less where keys have often been, and forgets each channel at its own rate.

        S_t = (I - beta_t M_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t M_t k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)
        A_t = a'_t A_{t-1} + b_t k_t * k_t
        M_t = 1.5^(-r_t / (1 + |r_t|)),   r_t = log(A_t + 1e-6) - c

    It is `precond_gdn` with KDA's decay a_t, a number for each key channel; a'_t is one per head. Tumma, Loo
    & Rus 2026, arXiv:2604.21100.

    State: H K (V + 1), constant in length: S, and A as one more column of it. The convolution keeps 3 inputs
    per channel.

    Known for: both ways of treating channels apart, what is forgotten and what is written. With limit = 1 it
    is KDA.

    Differences: those of `kda` and of `precond_gdn`. Published code has A for each head of values; here it is
    for each head of keys, as in its Gated DeltaNet.
    """

    name = "precond_kda"
    kernel_families = (*KDA.kernel_families, "scan")
    generation = "test-time training"
    learner = KDA.learner._replace(optimiser="one gradient step, preconditioned by channel")
    Settings = PrecondKDASettings

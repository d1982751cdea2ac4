"""The mesa layer: reads the regularised least squares map of all tokens, each of which counts alike."""

from typing import Literal

from pydantic import Field

from linbench.models.blocks.heads import NO_CONVOLUTION, OutputNorm
from linbench.models.mesanet import MesaNet, MesaNetSettings


class MesaLayerSettings(MesaNetSettings):
    """Settings of the mesa layer.

    Published: q and k of unit length, no convolution, no gates, nothing after the heads; solved exactly.
    """

    conv: int = NO_CONVOLUTION
    decay: Literal["sigmoid", "none"] = Field(
        "none", description="what is kept from token to token: all, or sigmoid(w . x + b) per head"
    )
    strength: Literal["sigmoid", "one"] = Field(
        "one", description="weight of a token's error: one, or sigmoid(w . x + b) per head"
    )
    ridge_floor: float = Field(0.0, ge=0, description="what the learned ridge stays above")
    ridge_of: Literal["channel", "head"] = Field(
        "head", description="whether channels of a head have ridges of their own"
    )
    method: Literal["cg", "chebyshev", "exact"] = Field(
        "exact",
        description="how least squares are solved: exactly, or by steps of an iteration, which are faster",
    )
    output_norm: OutputNorm = Field("none", description="norm of the output, as everywhere")


class MesaLayer(MesaNet):
    """The mesa layer: reads the regularised least squares map of all tokens, each of which counts alike.

        S_t = argmin_S  sum over i <= t of |S^T k_i - v_i|^2 + l |S|^2
        o_t = S_t^T q_t

    The ridge l is learned, one per head. von Oswald et al. 2023, arXiv:2309.05858, found that transformers
    trained on sequences from random linear systems come to do this, and built it as one layer. MesaNet is the
    same with gates, and with conjugate gradients in place of a recursion.

    By Sherman-Morrison S_t = S_{t-1} + g_t (v_t - S_{t-1}^T k_t)^T: a delta rule that writes under the key
    g_t = P_t k_t, which is whitened by all keys so far, P_t = (sum of k k^T + l)^-1.

    State: H K (K + V), constant in length: the sums of k k^T and of k v^T. The paper carries P in place of
    the first.

    Known for: regression in context as well as can be, whatever the condition of the keys. Nothing is
    forgotten: after an overwrite a key recalls the mean of both values.

    Differences: the paper computes the recursion for P token by token; here the same is solved directly, in
    float64, for the tokens of a chunk at once (`method`). That its models norm q and k, and where the ridge
    starts, is not verified. The output projection starts at zero (docs/decisions/0002).
    """

    name = "mesa_layer"
    learner = MesaNet.learner._replace(optimiser="exact: least squares", retention="keeps all")
    Settings = MesaLayerSettings

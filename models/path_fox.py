"""PaTH-FoX: reflections as positions, and forget gates."""

from linbench.models.blocks.reflections import ReflectionSettings
from linbench.models.fox import FoX, FoXSettings
from linbench.models.path import PaTH


class PaTHFoXSettings(ReflectionSettings, FoXSettings):
    """Settings of PaTH-FoX: PaTH's, and where forget gates start."""


class PaTHFoX(PaTH, FoX):
    """PaTH-FoX: PaTH's reflections between query and key, and FoX's forget gates.

        o_t = sum_{s <= t} softmax_s(q_t^T H_t ... H_{s+1} k_s / sqrt(K) + log f_{s+1} + ... + log f_t) v_s
        H_t = I - beta_t w_t w_t^T,  f_t = sigmoid(w_f . x_t + b)   per head

    Yang et al. 2025, arXiv:2505.16381; gates of Lin et al. 2025, arXiv:2503.02130.

    State: a cache of H (K + V + 1) floats per token seen, of which the keys are reflected by every token and
    in float32; the convolution of w keeps 2 H K.

    Known for: lengths far beyond those of training, which PaTH alone does not reach: a reflected key never
    leaves the softmax, a forgotten one does.

    Differences: the gates' sum is added to the scores as it is, as in FoX. flash-linear-attention divides it
    by sqrt(K), too, so that its gates forget more slowly and with beta = 0 it is not FoX. The output
    projection starts at zero (docs/decisions/0002). The controlled form is PaTH's.
    """

    name = "path_fox"
    learner = PaTH.learner._replace(retention="keeps all; weights decay per head and token")
    Settings = PaTHFoXSettings

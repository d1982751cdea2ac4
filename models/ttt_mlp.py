"""TTT-MLP: a memory that is an MLP of two layers, trained by gradient steps while it reads."""

from typing import Literal

from pydantic import Field

from linbench.models.ttt_linear import TTTLinear, TTTSettings


class TTTMLPSettings(TTTSettings):
    """Settings of TTT-MLP. Published: as TTT-Linear, at a tenth of its learning rate."""

    inner_rate: float = Field(0.1, gt=0, description="largest learning rate of the memory")
    initial: Literal["learned"] = Field(
        "learned", description="the memory's weights before the first token; from zero no MLP learns"
    )


class TTTMLP(TTTLinear):
    """TTT-MLP: a memory that is an MLP of two layers, trained by gradient steps while it reads.

        W_t = W_0 - tau_t sum_{s <= t} lambda_s d/dW |f(k_s; W_0) - v_s|^2 / 2
        o_t = f(q_t; W_t),  f(x; W) = x + LN(gelu(x W_1 + b_1) W_2 + b_2)

    The rest is `ttt_linear`: mini-batches of 16, lambda_s = inner_rate sigmoid(w . x_s + b) / K, tau_t about
    1/i. The hidden layer has 4 K units. Sun et al. 2024, arXiv:2407.04620.

    State: H (8 K^2 + 5 K), and as much for the gradients of an unfinished mini-batch, unless it has one
    token.

    Known for: a larger and nonlinear memory at the same width of heads, which pays off in long contexts; and
    for its cost. Hidden units start small, and the smaller the shorter keys are: with keys of length one, as
    in the controlled form, a step changes b_2 far more than what its key recalls. Longer keys with larger
    steps (`qk_norm=rms`, `inner_rate=1`) change that.

    Differences: as `ttt_linear`. Published code warms the inner learning rate up from a tenth of it, which is
    left to the outer one here.
    """

    name = "ttt_mlp"
    learner = TTTLinear.learner._replace(memory="MLP of two layers")
    Settings = TTTMLPSettings
    kind = "mlp"

"""RWKV-5, Eagle: a matrix memory whose rows decay at constant rates."""

import math
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo, Out, Rule
from linbench.models.blocks.init import indices
from linbench.models.blocks.shift_mixer import ShiftMixer, ShiftSettings, ShiftState, Streams
from linbench.models.blocks.token_shift import TokenShift, channel_positions, layer_depth, own_token_share
from linbench.models.learner import Learner


class RWKV5Settings(ShiftSettings):
    """Settings of RWKV-5. Published: token shift, group norm of the output, a SiLU gate."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )


class RWKV5(ShiftMixer):
    """RWKV-5, Eagle: a matrix memory whose rows decay at constant rates.

        o_t = S_{t-1}^T r_t + (r_t . (u k_t)) v_t
        S_t = diag(w) S_{t-1} + k_t v_t^T
        w = exp(-exp(time_decay))

    r, k, v and the gate each read a mixture of a token and the one before. Peng et al. 2024,
    arXiv:2404.05892.

    State: H K V, constant in length, and D for the token shift.

    Known for: rows that forget at rates between almost never and within a token or two, more slowly the
    deeper the layer. A token is read with a weight u of its own, before it is written. The decay does not
    depend on what is read, so nothing can be kept or dropped at will.

    Differences: the group norm has eps 64e-5, where published code divides by 8 first and has 1e-5. RWKV's
    own channel mixer, which has a token shift of its own, follows with `channel_mixer=own`. The backbone has
    no LayerNorm (ln0) after the embedding, unlike published models, whose embedding starts near zero. Linear
    maps start as torch's do, the output projection at zero (docs/decisions/0002).
    """

    name = "rwkv5"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="constant decay per key channel",
    )
    channel_mixer = "rwkv4"
    Settings = RWKV5Settings
    stream_names = "rkvg"

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, _ = self.memory_shape
        width, risen = heads * key_dim, layer_depth(layer).rising
        ripple = 0.1 * ((indices(width) + 1) % 3 - 1)
        published = -6 + 5 * channel_positions(width) ** (0.7 + 1.3 * risen)
        self.time_decay = nn.Parameter(settings.start(published, math.log).view(heads, key_dim))
        self.bonus = nn.Parameter((risen * (1 - channel_positions(width)) + ripple).view(heads, key_dim))

    def token_shift(self) -> TokenShift:
        """Return a token shift by which early channels look back, and more channels in later layers."""
        width, (risen, left) = self.layer.d_model, layer_depth(self.layer)
        half = 1 - own_token_share(width, left / 2)
        mixes = {
            "k": 1 - own_token_share(width, left),
            "v": 1 - own_token_share(width, left) - 0.3 * risen,
            "r": half,
            "g": half,
        }
        return TokenShift(self.select_streams(mixes))

    def log_decay(self, streams: Streams) -> Tensor:
        """Return the log decay, broadcastable to [B, T, H, K], in at least float32."""
        return -to_float32(self.time_decay).exp()[None, None]

    def forward(self, x: Tensor, state: ShiftState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        streams, r, k, v, conv, shift = self.project_tokens(x, state)
        o, memory = matrix_state(
            r,
            k,
            v,
            log_decay=self.log_decay(streams),
            read="before",
            bonus=self.bonus,
            scale=1.0,
            state=state and state.memory,
        )
        return Out(self.readout(o, streams.get("g", x)), ShiftState(memory, conv, shift), cross_layer)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for everything that is not a linear map."""
        return {**super().parameter_rules(), "time_decay": Rule(decay=False), "bonus": Rule(decay=False)}

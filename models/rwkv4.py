"""RWKV-4: for each channel an average of the past, weighted by keys, that fades with distance."""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.decays import SCORE_FLOOR
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.scan import flops_per_token, scan
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.heads import CONTROLLED, FAMILIES
from linbench.models.blocks.init import BranchSettings, indices, orthogonal, zero_init
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.prefix_scan import running_maximum
from linbench.models.blocks.starting_gates import GateSettings
from linbench.models.blocks.token_shift import TokenShift, channel_positions, layer_depth, own_token_share
from linbench.models.learner import Learner

NOTHING = -1e38
"""The logarithm of no weight at all; finite, so that differences are finite, too."""


class RWKV4Settings(GateSettings, BranchSettings):
    """Settings of RWKV-4. Published: token shift, and receptance as a gate."""

    token_shift: bool = Field(
        True, description="each projection reads its own mixture of a token and the one before"
    )
    conv: int = INPUT_CONVOLUTION
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the average, over all channels")
    output_gate: Literal["none", "sigmoid"] = Field("sigmoid", description="receptance, after the norm")


class RWKV4State(NamedTuple):
    """State of RWKV-4.

    memory: both sums over e^peak, and peak [B, 3, D], in at least float32. conv: what the short convolution
    remembers [B, kernel-1, D]. shift: the last token [B, D]. The latter two are None without convolution or
    token shift.
    """

    memory: Tensor
    conv: Tensor | None
    shift: Tensor | None


class RWKV4(Mixer):
    """RWKV-4: for each channel an average of the past, weighted by keys, that fades with distance.

        o_t = (sum_{s<t} e^{k_s - (t-1-s) w} v_s + e^{u + k_t} v_t) / (sum_{s<t} e^{k_s - (t-1-s) w} + e^{u +
        k_t})
        y_t = W_o (sigmoid(r_t) o_t)

    w = exp(time_decay) and u are per channel. r, k and v each read a mixture of a token and the one before.
    Peng et al. 2023, arXiv:2305.13048.

    State: three numbers per channel (both sums and the logarithm of their scale), constant in length; D for
    the token shift, (kernel - 1) D for a convolution.

    Known for: a transformer-like layer whose state is a vector. Channels forget at rates of their own, half
    of them within about a token in the first layer. There is no query: what a channel recalls does not depend
    on what is asked, so recall of many pairs is impossible.

    Differences: value starts orthogonal; receptance, key and output start at zero, as published. RWKV's own
    channel mixer, which has a token shift of its own, follows with `channel_mixer=own`. The backbone has no
    LayerNorm (ln0) after the embedding, unlike published models, whose embedding starts near zero. In the
    controlled form the short convolution is on the layer's input, as the LSTM's is: k is the logarithm of a
    weight, which SiLU would keep from falling. Without heads the norm is over all channels. The maps that
    remain start as published.
    """

    name = "rwkv4"
    channel_mixer = "rwkv4"
    kernel_families: ClassVar[tuple[str, ...]] = ("scan", "token_shift", *FAMILIES)
    generation = "gates and decay"
    learner = Learner(
        loss="squared error of a constant per channel, weighted by e^k and age",
        memory="two sums per channel, whose ratio is read",
        optimiser="exact: the weighted mean",
        retention="constant decay per channel",
    )
    Settings = RWKV4Settings
    controlled: ClassVar[dict[str, Any] | None] = {"token_shift": False} | {
        name: CONTROLLED[name] for name in ("conv", "output_norm", "output_gate")
    }

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width, (risen, left) = layer.d_model, layer_depth(layer)
        whole = 1 - own_token_share(width, left)
        mixes = {"k": whole, "v": whole - 0.3 * risen}
        gated = settings.output_gate == "sigmoid"
        if gated:
            mixes["r"] = 1 - own_token_share(width, left / 2)
        self.conv = InputConvolution(width, settings.conv)
        self.shift = TokenShift(mixes) if settings.token_shift else None
        self.receptance = zero_init(Linear(width, width)) if gated else None
        self.key = zero_init(Linear(width, width))
        self.value = Linear(width, width)
        self.output = zero_init(Linear(width, width), silent=settings.silent)
        orthogonal(self.value, gain=1.0)
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        published = -5 + 8 * channel_positions(width) ** (0.7 + 1.3 * risen)
        self.time_decay = nn.Parameter(settings.start(published, math.log))
        self.time_first = nn.Parameter(math.log(0.3) + 0.5 * ((indices(width) + 1) % 3 - 1))

    def forward(self, x: Tensor, state: RWKV4State | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        before = self.init_state(x.shape[0], capacity=x.shape[1]) if state is None else state
        read, conv = self.conv(x, state and state.conv)
        if self.shift is None:
            streams, last = dict.fromkeys("kvr", read), None
        else:
            streams, last = self.shift(read, state and state.shift)
        k, v = self.key(streams["k"]), self.value(streams["v"])
        o, memory = wkv(k, v, self.time_decay, self.time_first, before.memory)
        if self.norm is not None:
            o = self.norm(o)
        if self.receptance is not None:
            o = torch.sigmoid(self.receptance(streams["r"]).to(o.dtype)) * o
        return Out(self.output(o.to(v.dtype)), RWKV4State(memory, conv, last), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> RWKV4State:
        """Return empty sums; the size does not depend on `capacity`."""
        weight = self.output.weight
        sums = weight.new_zeros(batch, 2, self.layer.d_model, dtype=at_least_float32(weight.dtype))
        memory = torch.cat([sums, torch.full_like(sums[:, :1], NOTHING)], dim=1)
        return RWKV4State(
            memory,
            self.conv.init_state(batch),
            None if self.shift is None else weight.new_zeros(batch, self.layer.d_model),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return 3 D, (kernel - 1) D for the convolution, D for the token shift."""
        width = self.layer.d_model
        return StateSize(
            recurrent=3 * width,
            convolution=self.conv.state_floats(),
            shift=0 if self.shift is None else width,
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of both sums, of writing and of reading.

        To write is one product per channel. To read is two multiply-adds, a quotient and the product with
        receptance, if there is one.
        """
        each = 6 if self.receptance is None else 7
        return flops_per_token(2 * self.layer.d_model) + each * self.layer.d_model

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for everything that is not a linear map."""
        no_decay = ("shift.mix", "time_decay", "time_first")
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name in no_decay}


def wkv(k: Tensor, v: Tensor, time_decay: Tensor, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return o [B, T, D] of the equation and the memory, in the dtype of the memory.

    Both sums are kept divided by e^peak, where peak is about the logarithm of their largest term, so that
    nothing overflows and the divisor does not vanish. Any peak gives the same quotient as long as sums are
    brought from one peak to the next by their exact difference. So it need not be exact itself, and has no
    gradient: it is a running maximum of k_s + s w, less t w.

    Args:
        k, v: [B, T, D].
        time_decay, u: [D].
        memory: [B, 3, D].
    """
    # a faster decay would leave no less, and cost the keys their digits
    w = time_decay.to(memory.dtype).clamp(max=math.log(-SCORE_FLOOR)).exp()
    k, v, u = (x.to(memory.dtype) for x in (k, v, u))
    numerator, denominator, peak = memory.unbind(dim=1)
    time_w = torch.arange(k.shape[1] + 1, device=k.device)[:, None] * w.detach()  # t w
    log_weights = torch.cat([peak.detach()[:, None], k.detach() + time_w[1:]], dim=1)  # k_s + s w
    peaks = running_maximum(log_weights) - time_w
    before, after = peaks[:, :-1], peaks[:, 1:]
    decay, weight = (before - after - w).exp(), (k - after).exp()
    start = torch.cat([numerator, denominator], dim=-1)
    h, last = scan(torch.cat([decay, decay], dim=-1), torch.cat([weight * v, weight], dim=-1), start)
    past, weights = torch.cat([start[:, None], h[:, :-1]], dim=1).chunk(2, dim=-1)
    larger = torch.maximum(before, u.detach() + k.detach())
    earlier, own = (before - larger).exp(), (u + k - larger).exp()
    o = (earlier * past + own * v) / (earlier * weights + own)
    return o, torch.stack([*last.chunk(2, dim=-1), after[:, -1]], dim=1)

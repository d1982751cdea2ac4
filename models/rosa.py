"""ROSA of RWKV-8: copies what followed the longest suffix seen before."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import without_autocast
from linbench.kernels.suffix_match import History, signs, suffix_match
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import CPU, BranchSettings, zero_init
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.positions import require_places
from linbench.models.blocks.token_shift import TokenShift
from linbench.models.learner import Learner


class ROSASettings(BranchSettings):
    """Settings of ROSA. Published: token shift, symbols of one or of four bits; no convolution, no norm."""

    bits: int = Field(
        4, ge=1, le=16, description="channels whose signs make a symbol; published with 1 and with 4"
    )
    token_shift: bool = Field(
        True, description="each projection reads its own mixture of a token and the one before"
    )
    conv: int = INPUT_CONVOLUTION
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the copies, over all channels")


class ROSAState(NamedTuple):
    """State of ROSA, with S places for tokens.

    keys, values: signs of all tokens so far, with zeros in unused places [B, S, D]. runs: how many symbols up
    to each key equal those up to the last query [B, S, D / bits], in at least float32. seen: number of tokens
    so far [B]. conv: what the short convolution remembers [B, kernel-1, D], None without one. shift: the last
    token [B, D], None without token shift.
    """

    keys: Tensor
    values: Tensor
    runs: Tensor
    seen: Tensor
    conv: Tensor | None
    shift: Tensor | None


class ROSA(Mixer):
    """ROSA, the rapid online suffix automaton: copies what followed the longest suffix seen before.

        y_t = W_o (e * o_t) + b_o,   o_t = sign(v_{j+1}), or 0 if q_t equals no earlier key
        j < t: keys up to k_j end as queries up to q_t do, for longest; of several, the latest

    Symbols are the signs of a few channels of q, k and v, and each group of channels has a match of its own.
    Peng 2025, github.com/BlinkDL/RWKV-LM (RWKV-v8); there is no paper.

    State: 2 D signs and D / bits lengths of matches per token seen. It grows as a cache does: a suffix
    automaton, which needs a constant time per token, holds no less.

    Known for: exact copies of what repeats exactly, over any distance, without a softmax. Where nothing
    repeats symbol by symbol, as among noise, it reads nothing of use.

    Differences: signs have no gradient, and the source has published no rule for q, k and v. Here the
    gradient is that of a relaxed match of up to 32 symbols (`kernels/suffix_match/copying.py`), after
    github.com/wjie98/rosa_soft; finite differences do not give it. It stays among the tokens of one call.
    Without a match the copy is zero, as in the source's code for symbols of four bits; that for one bit
    copies a negative sign. Projections are computed in the precision of the weights under torch.autocast,
    too, so that no sign changes with it. The output map starts at zero (docs/decisions/0002).
    """

    name = "rosa"
    year = 2025
    channel_mixer = "rwkv7"
    kernel_families: ClassVar[tuple[str, ...]] = ("suffix_match", "token_shift", *FAMILIES)
    generation = "other"
    gradient = "surrogate"
    learner = Learner(
        loss="none: every symbol is kept as it is",
        memory="every key and value",
        optimiser="none: nothing is fitted",
        retention="keeps all",
    )
    Settings = ROSASettings
    controlled: ClassVar[dict[str, Any] | None] = {"token_shift": False, "conv": 4, "output_norm": "rms"}

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width = layer.d_model
        if width % settings.bits:
            raise UserError(f"model.bits = {settings.bits} does not divide d_model = {width}.")
        self.conv = InputConvolution(width, settings.conv)
        unmixed = dict.fromkeys("qkv", torch.zeros(width, device=CPU))
        self.shift = TokenShift(unmixed) if settings.token_shift else None
        self.query, self.key, self.value = (Affine(width, width) for _ in range(3))
        self.e = nn.Parameter(torch.ones(width))
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Affine(width, width), silent=settings.silent)

    def forward(self, x: Tensor, state: ROSAState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says.

        Raises:
            RuntimeError: if a cache gets more tokens than its capacity.
        """
        return self._mix(x, state, cross_layer, in_place=False)

    def decode(self, x: Tensor, state: ROSAState, cross_layer: Any = None) -> Out:
        """Mix the next tokens as `Mixer.decode` says, writing into the cache in place."""
        return self._mix(x, state, cross_layer, in_place=True)

    def _mix(self, x: Tensor, state: ROSAState | None, cross_layer: Any, *, in_place: bool) -> Out:
        with without_autocast(x):
            (q, k, v), conv, shift = self.project(x.to(self.e.dtype), state)
        after = history = None
        if state is not None:
            after = self.append(state, k, v, in_place=in_place)
            history = History(self.symbols(after.keys), self.symbols(after.values), state.runs, state.seen)
        o, runs = suffix_match(self.symbols(q), self.symbols(k), self.symbols(v), history=history)
        if after is not None:
            after = after._replace(runs=runs, conv=conv, shift=shift)
        y = (self.e * o.flatten(2)).to(x.dtype)
        return Out(self.linear(y if self.norm is None else self.norm(y)), after, cross_layer)

    def project(
        self, x: Tensor, state: ROSAState | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None, Tensor | None]:
        """Return q, k and v [B, T, D] of x [B, T, D], and what convolution and token shift remember."""
        read, conv = self.conv(x, state and state.conv)
        streams, last = dict.fromkeys("qkv", read), None
        if self.shift is not None:
            streams, last = self.shift(read, state and state.shift)
        maps = {"q": self.query, "k": self.key, "v": self.value}
        return tuple(of(streams[letter]) for letter, of in maps.items()), conv, last

    def symbols(self, x: Tensor) -> Tensor:
        """Return x [B, T, D] by symbol: [B, T, D / bits, bits]."""
        return x.view(*x.shape[:-1], -1, self.settings.bits)

    def append(self, state: ROSAState, k: Tensor, v: Tensor, *, in_place: bool) -> ROSAState:
        """Append signs of k and v [B, T, D] to the cache, without the runs."""
        at = state.seen[:, None] + torch.arange(k.shape[1], device=k.device)
        require_places(at, state.keys.shape[1])
        scatter = Tensor.scatter_ if in_place else Tensor.scatter
        index = at[..., None].expand_as(k)
        keys, values = (
            scatter(kept, 1, index, signs(new.detach()).to(kept.dtype))
            for kept, new in ((state.keys, k), (state.values, v))
        )
        return state._replace(keys=keys, values=values, seen=state.seen + k.shape[1])

    def init_state(self, batch: int, *, capacity: int) -> ROSAState:
        """Return an empty cache of `capacity` places."""
        weight, width = self.linear.weight, self.layer.d_model
        runs = weight.new_zeros(
            batch, capacity, width // self.settings.bits, dtype=at_least_float32(weight.dtype)
        )
        seen = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        keys, values = (weight.new_zeros(batch, capacity, width) for _ in range(2))
        shift = None if self.shift is None else weight.new_zeros(batch, width)
        return ROSAState(keys, values, runs, seen, self.conv.init_state(batch), shift)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return 2 D for each of `seq_len` tokens, and D / bits runs of it, which every token changes.

        Also (kernel - 1) D for the convolution and D for the token shift.
        """
        width = self.layer.d_model
        return StateSize(
            recurrent=seq_len * (width // self.settings.bits),
            cache=seq_len * 2 * width,
            convolution=self.conv.state_floats(),
            shift=0 if self.shift is None else width,
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the product with e; an automaton looks symbols up, and that is no arithmetic."""
        return float(self.layer.d_model)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for everything that is not a linear map."""
        no_decay = ("shift.mix", "e", "norm.weight")
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name in no_decay}

"""Softmax attention: keep everything, look at all of it."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.attention import EMPTY, attention, flops_per_token
from linbench.kernels.decays import bounded_for_scores
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.rotary import rotate
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.heads import (
    CONTROLLED,
    FAMILIES,
    OUTPUT_NORM,
    HeadProjection,
    HeadSettings,
    OutputNorm,
    QKNorm,
    Readout,
    share_input,
)
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.positions import alibi_slopes, angles
from linbench.models.blocks.prefix_scan import running_sum


class AttentionSettings(HeadSettings):
    """Published: rotary positions, nothing around the heads."""

    conv: int = Field(
        0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    qk_norm: QKNorm = Field(
        "none", description="norm of q and k per head; with l2 the scores get a learned scale (2010.04245)"
    )
    output_norm: OutputNorm = Field("none", description=OUTPUT_NORM.description)
    positions: Literal["rope", "none", "alibi"] = Field(
        "rope", description="how a token knows where it stands"
    )
    window: int | None = Field(
        None, ge=1, description="how many keys a query sees, itself included; null is all"
    )


class Cache(NamedTuple):
    """Keys [B, H, S, K] and values [B, H, S, V], a head's side by side, with their positions [B, S]: `EMPTY`
    where there is none yet, and zeros; how many tokens were seen [B]; the convolution; with forget gates the
    logarithm of what is left of each key [B, S, H], in at least float32."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    seen: Tensor
    conv: Tensor | None
    log_left: Tensor | None = None


class Tokens(NamedTuple):
    """Of some tokens: what maps read, q, k and v by head, positions [B, T], the convolution, and sums of log
    forget gates [B, T, H] in float64."""

    shared: SharedInput
    q: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor
    conv: Tensor | None
    log_forget_sum: Tensor | None


class Attention(Mixer):
    """o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s.

    Vaswani et al. 2017, arXiv:1706.03762; rotary positions (2104.09864), ALiBi (2108.12409) or none; a
    sliding window of w keys, itself included (2310.06825).

    State: a cache of H (K + V) floats per token seen, at most w tokens with a window.
    Known for: exact recall of anything it has kept, at a cost that grows with length. In the controlled form
    it has the short convolution like all others instead of positions, and the l2 norm of q and k comes with a
    learned scale per head that starts at sqrt(K) (2010.04245), since scores within 1/sqrt(K) of zero could
    not select. The output projection starts at zero (docs/decisions/0002).
    """

    name = "attention"
    families = ("attention", "rotary", *FAMILIES)
    generation = "softmax"
    Settings = AttentionSettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "positions": "none"}

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.project = HeadProjection(settings, layer)
        self.readout = Readout(settings, layer)
        if settings.positions == "rope" and self.project.key_dim % 2:
            raise UserError(
                f"model.positions = rope needs an even head dimension, not {self.project.key_dim}; choose"
                " other heads or head_dim."
            )
        self.scale = (
            nn.Parameter(torch.full((settings.heads,), self.project.key_dim**0.5))
            if settings.qk_norm == "l2"
            else None
        )
        self.slopes: Tensor | None
        self.register_buffer(
            "slopes", alibi_slopes(settings.heads) if settings.positions == "alibi" else None
        )

    def forward(self, x: Tensor, state: Cache | None = None, handed: Any = None) -> Out:
        """As `Mixer.forward`. Raises RuntimeError when a cache gets more tokens than its capacity."""
        if state is None:
            return self._start(x, None, handed)
        new = self._project_tokens(x, state)
        keys, values = (
            torch.cat([old.transpose(1, 2), one], dim=1)
            for old, one in ((state.keys, new.k), (state.values, new.v))
        )
        there = torch.cat([state.positions, new.positions], dim=1)
        kept = (
            None
            if new.log_forget_sum is None or state.log_left is None
            else (new.log_forget_sum, torch.cat([-state.log_left.double(), new.log_forget_sum], dim=1))
        )
        return Out(self._attend(new, keys, values, there, kept), self._append(state, new), handed)

    def prefill(self, x: Tensor, *, capacity: int, handed: Any = None) -> Out:
        """As `Mixer.prefill`: nobody looks at the empty places of the cache."""
        return self._start(x, self.init_state(x.shape[0], capacity=capacity), handed)

    def decode(self, x: Tensor, state: Cache, handed: Any = None) -> Out:
        """As `Mixer.decode`: into the cache as it lies, which is then looked at once."""
        # the first of the tokens may see keys that give way to the last
        if self.settings.window is not None and x.shape[1] > 1:
            return super().decode(x, state, handed)
        new = self._project_tokens(x, state)
        cache = self._append(state, new, within=True)
        kept = None
        # of several tokens the first may see much where the last has little left
        if new.log_forget_sum is not None and cache.log_left is not None:
            left = cache.log_left if x.shape[1] == 1 else _log_left_after(state, new)
            kept = new.log_forget_sum - new.log_forget_sum[:, -1:], -left
        return Out(
            self._attend(
                new, cache.keys.transpose(1, 2), cache.values.transpose(1, 2), cache.positions, kept
            ),
            cache,
            handed,
        )

    def _start(self, x: Tensor, cache: Cache | None, handed: Any) -> Out:
        """The start of sequences. `cache`: an empty one, for x to be remembered."""
        new = self._project_tokens(x, None)
        o = self._attend(
            new,
            new.k,
            new.v,
            None,
            None if new.log_forget_sum is None else (new.log_forget_sum, new.log_forget_sum),
        )
        return Out(o, None if cache is None else self._append(cache, new, first=True), handed)

    def _project_tokens(self, x: Tensor, state: Cache | None) -> Tokens:
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        here = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
        here = here if state is None else here + state.seen[:, None]
        if self.settings.positions == "rope":
            turn = angles(
                here[:1] if state is None else here, self.project.key_dim, at_least_float32(q.dtype)
            )
            q, k = rotate(q, *turn), rotate(k, *turn)
        forgotten = self.log_forget(given)
        return Tokens(
            given,
            q,
            k,
            v,
            here,
            conv,
            None if forgotten is None else running_sum(bounded_for_scores(forgotten)),
        )

    def _attend(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        there: Tensor | None,
        kept: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """The layer's output. there: positions of the keys, None where they are those of the queries, from
        zero on."""
        o = attention(
            new.q,
            keys,
            values,
            query_positions=None if there is None else new.positions,
            key_positions=there,
            window=self.settings.window,
            slopes=self.slopes,
            kept=kept,
            scale=self.scale,
            empty_is_zero=True,
        )
        y: Tensor = self.readout(o, new.shared)
        return y

    def log_forget(self, x: SharedInput) -> Tensor | None:
        """Logarithms of gates [B, T, H] by which a token forgets what came before it; None: nothing is
        forgotten."""
        return None

    def _append(self, state: Cache, new: Tokens, *, within: bool = False, first: bool = False) -> Cache:
        """within: in the tensors of `state` themselves. first: so, too, and nothing is in there yet."""
        places = state.keys.shape[2]
        if self.settings.window is None or places < self.settings.window:
            torch._assert_async(
                (new.positions[:, -1] < places).all(), f"the cache holds {places} tokens and is full"
            )
        k, v, here = (
            part[:, -places:]
            for part in (new.k.to(state.keys.dtype), new.v.to(state.values.dtype), new.positions)
        )
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        place = here % places  # with a window the oldest gives way
        left = None if state.log_left is None else _log_left_after(state, new).to(state.log_left.dtype)
        write = Tensor.scatter_ if within or first else Tensor.scatter
        wide = place[:, None, :, None]
        in_order = (
            first and new.positions.shape[1] <= places
        )  # then a copy does, which takes a GPU much less time

        def put(cache: Tensor, x: Tensor) -> Tensor:
            if in_order:
                cache[:, :, : x.shape[2]] = x
                return cache
            return write(cache, 2, wide.expand_as(x), x)

        return Cache(
            put(state.keys, k),
            put(state.values, v),
            write(state.positions, 1, place, here),
            new.positions[:, -1] + 1,
            new.conv,
            left,
        )

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """An empty cache of `capacity` places, or as many as the window has: zeros, as a weight of zero does
        not silence what is not a number."""
        weight = self.readout.linear.weight
        places = min(capacity, self.settings.window or capacity)
        shape = batch, self.project.heads, places
        return Cache(
            weight.new_zeros(*shape, self.project.key_dim),
            weight.new_zeros(*shape, self.project.value_dim),
            torch.full((batch, places), EMPTY, device=weight.device),
            torch.zeros(batch, dtype=torch.int64, device=weight.device),
            self.project.init_state(batch),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """H (K + V) for each of the last `seq_len` tokens, or of the window."""
        kept = min(seq_len, self.settings.window or seq_len)
        per_token = self.project.heads * (self.project.key_dim + self.project.value_dim)
        return StateSize(cache=kept * per_token, convolution=self.project.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """The mean over the positions of a sequence: token t sees t + 1 keys, at most the window."""
        window = min(self.settings.window or seq_len, seq_len)
        keys = (window * (window + 1) / 2 + (seq_len - window) * window) / seq_len
        attended = flops_per_token(
            heads=self.project.heads,
            key_dim=self.project.key_dim,
            value_dim=self.project.value_dim,
            keys=keys,
        )
        return attended + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """The scale must be free to grow: recall over many keys needs scores well above log T."""
        return {} if self.scale is None else {"scale": Rule(decay=False)}


def _log_left_after(state: Cache, new: Tokens) -> Tensor:
    """Return the logarithms of what is left of each key in the cache [B, S, H] after the last of the tokens,
    theirs among them, in float64."""
    assert state.log_left is not None
    assert new.log_forget_sum is not None
    places = state.log_left.shape[1]
    place, now = (new.positions[:, -places:] % places)[:, :, None], new.log_forget_sum[:, -1:]
    after = (now - new.log_forget_sum)[:, -places:]
    return (state.log_left + now).scatter(1, place.expand_as(after), after)

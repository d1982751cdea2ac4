"""Attention over a cache of keys and values: projections, what is kept, and one token at a time."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from linbench.kernels.attention import EMPTY, flops_per_token
from linbench.kernels.attention.caches import read_next, reads_next
from linbench.kernels.decays import bounded_for_scores
from linbench.kernels.dtypes import to_float32
from linbench.kernels.rotary import rotate_at
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.caches import Cache, Tokens, append, log_left_after, require_room
from linbench.models.blocks.heads import HeadProjection, Readout, share_input
from linbench.models.blocks.key_norms import score_scale
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.positions import alibi_slopes, turned_dims
from linbench.models.blocks.prefix_scan import running_sum
from linbench.models.blocks.shared_keys import shared_heads


class CachedAttention(Mixer):
    """Mixer that keeps the keys and values of all tokens, or of a window, and reads them for every query.

    A subclass says in `read` what a query makes of them. Its settings are `AttentionSettings`, or have the
    names of these that its own parts ask for.
    """

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.project = self.make_projection()
        self.readout = self.make_readout()
        self.turned = self.turned_dims() if settings.positions == "rope" else 0
        self.scale = self.make_scale()
        self.slopes: Tensor | None
        self.register_buffer(
            "slopes", alibi_slopes(settings.heads) if settings.positions == "alibi" else None
        )

    def make_projection(self) -> HeadProjection:
        """Return the module that makes q, k and v. Variants may override it.

        Raises:
            UserError: if heads cannot share keys as the settings say.
        """
        kv_heads = shared_heads(self.settings, "kv_heads")
        return HeadProjection(self.settings, self.layer, kv_heads=kv_heads)

    def make_readout(self) -> Readout:
        """Return the module that makes the layer's output from its heads'. Variants may override it."""
        return Readout(self.settings, self.layer)

    def make_scale(self) -> nn.Parameter | None:
        """Return a learned scale of each head's scores, None for 1 / sqrt(K). Variants may override it."""
        return score_scale(self.settings, self.project.key_dim)

    def turned_dims(self) -> int:
        """Return how many of the first dimensions of q and k positions rotate. Variants may override it."""
        return turned_dims(self.project.key_dim, self.settings.rope_fraction)

    def attended_dims(self) -> tuple[int, int]:
        """Return the widths of the keys and values that a head reads. Variants may override it."""
        return self.project.key_dim, self.project.value_dim

    def forward(self, x: Tensor, state: Cache | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says.

        Raises:
            RuntimeError: if a cache gets more tokens than its capacity.
        """
        if state is None:
            return self._start(x, None, cross_layer)
        new = self._project_tokens(x, state)
        keys = torch.cat([state.keys.transpose(1, 2), new.k], dim=1)
        values = torch.cat([state.values.transpose(1, 2), new.v], dim=1)
        key_positions = torch.cat([state.positions, new.positions], dim=1)
        sums = None
        if new.log_forget_sum is not None and state.log_left is not None:
            at_queries = new.log_forget_sum
            sums = at_queries, torch.cat([-state.log_left.double(), at_queries], dim=1)
        y = self._attend(new, keys, values, key_positions, sums)
        return Out(y, self._append(state, new), cross_layer)

    def prefill(self, x: Tensor, *, capacity: int, cross_layer: Any = None) -> Out:
        """Mix the first tokens as `Mixer.prefill` says, without reading the empty places of the cache."""
        return self._start(x, self.init_state(x.shape[0], capacity=capacity), cross_layer)

    def decode(self, x: Tensor, state: Cache, cross_layer: Any = None) -> Out:
        """Mix the next tokens as `Mixer.decode` says, writing into the cache in place and reading it once."""
        if self.settings.window is not None and x.shape[1] > 1:
            # the first of these tokens may see keys that the last of them overwrites
            return super().decode(x, state, cross_layer)
        biased = self.slopes is not None or state.log_left is not None
        if self.is_plain and reads_next(state.keys, state.values, state.seen, x, biased=biased):
            return self._decode_next(x, state, cross_layer)
        new = self._project_tokens(x, state)
        cache = self._append(state, new, in_place=True)
        sums = None
        if new.log_forget_sum is not None and cache.log_left is not None:
            # of a key of which little is left after the last token, the first may still see much: their
            # difference needs the digits of float64
            log_left = cache.log_left if x.shape[1] == 1 else log_left_after(state, new)
            sums = new.log_forget_sum - new.log_forget_sum[:, -1:], -log_left
        return Out(self._attend_cache(new, cache, sums), cache, cross_layer)

    @property
    def is_plain(self) -> bool:
        """Return whether tokens are turned, kept and read as softmax attention does it, in one launch."""
        return False

    def _decode_next(self, x: Tensor, state: Cache, cross_layer: Any) -> Out:
        """Mix the next token in place as `decode` does, with one launch for all between the linear maps."""
        given = self.share(x)
        q, k, v, conv = self.project(given, state.conv)
        log_forget = self.log_forget(given)
        gates = None
        if log_forget is not None and state.log_left is not None:
            gates = bounded_for_scores(log_forget).to(state.log_left.dtype), state.log_left
        o, seen, fits, log_left = read_next(
            *(q, k, v, state.keys, state.values, state.positions, state.seen),
            turned=self.turned,
            slopes=self.slopes,
            gates=gates,
            scale=self.scale,
        )
        cache = state._replace(seen=seen, conv=conv, log_left=log_left)
        require_room(cache, fits, self.settings.window)
        return Out(self.readout(o, given), cache, cross_layer)

    def _attend_cache(self, new: Tokens, cache: Cache, sums: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the layer's output for tokens that are in the cache already."""
        keys, values = cache.keys.transpose(1, 2), cache.values.transpose(1, 2)
        return self._attend(new, keys, values, cache.positions, sums)

    def _start(self, x: Tensor, cache: Cache | None, cross_layer: Any) -> Out:
        """Mix the first tokens of sequences, and append them to `cache`, an empty one, if it is given."""
        new = self._project_tokens(x, None)
        sums = None if new.log_forget_sum is None else (new.log_forget_sum, new.log_forget_sum)
        y = self._attend(new, new.k, new.v, None, sums)
        return Out(y, None if cache is None else self._append(cache, new, first=True), cross_layer)

    def _project_tokens(self, x: Tensor, state: Cache | None) -> Tokens:
        given = self.share(x)
        q, k, v, conv = self.project(given, state and state.conv)
        positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
        if state is not None:
            positions = positions + state.seen[:, None]
        of_all = positions[:1] if state is None else positions  # at the start all rows are alike
        more = self._read_beside(given, (q, k, v), of_all, state)
        q, k = self.turn(q, k, of_all)
        log_forget = self.log_forget(given)
        log_forget_sum = None if log_forget is None else running_sum(bounded_for_scores(log_forget))
        return Tokens(given, q, k, v, positions, conv, log_forget_sum, more)

    def share(self, x: Tensor) -> SharedInput:
        """Wrap the input for all its linear maps. Variants with maps of something else override it."""
        return share_input(x, self, self.readout)

    def turn(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q and k [B, T, H, K] by positions [B or 1, T], where these rotate them."""
        if not self.turned:
            return q, k
        q, k = rotate_at((q, k), positions, self.turned)
        return q, k

    def _read_beside(self, x: SharedInput, heads: Any, positions: Tensor, state: Cache | None) -> Any:
        """Return what a variant makes of q, k and v before they are rotated: `Tokens.more`."""
        return None

    def _attend(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Return the layer's output.

        Args:
            new: the tokens with the queries.
            keys, values: [B, S, Hk, K or V].
            key_positions: [B, S]; None if keys and queries are the same tokens, from position zero on.
            log_forget_sums: running sums of log forget gates at queries and at keys.
        """
        o = self.read(new, keys, values, key_positions, log_forget_sums)
        y: Tensor = self.readout(o, new.shared)
        return y

    @abstractmethod
    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute the equation: return o [B, T, H, V], of the arguments of `_attend`.

        Empty places hold zeros.
        """

    def asked_of(self, new: Tokens, key_positions: Tensor | None) -> dict[str, Any]:
        """Return the arguments by name that all doors of attention take: positions, and factors of scores.

        Args:
            new: the tokens with the queries.
            key_positions: as `read` has them.
        """
        return {
            "query_positions": None if key_positions is None else new.positions,
            "key_positions": key_positions,
            "scale": self.scale,
            "empty_is_zero": True,
        }

    def first_token_share(self, x: Tensor) -> Tensor:
        """Return what share of its weights each head gives to the first token, as `Mixer` says.

        Weights are read as what they make of values: of one for the first token and zero for all others.
        """
        new = self._project_tokens(x, None)
        sums = None if new.log_forget_sum is None else (new.log_forget_sum, new.log_forget_sum)
        values = torch.ones_like(new.k[..., :2])
        values[:, 1:, :, 0] = 0
        on_first, on_all = to_float32(self.read(new, new.k, values, None, sums)[:, 1:]).unbind(dim=-1)
        return (on_first / on_all.clamp(min=1e-9)).mean(dim=(0, 1))

    def log_forget(self, x: SharedInput) -> Tensor | None:
        """Return the logarithms of forget gates [B, T, H] of what came before; None: there are none."""
        return None

    def _append(self, state: Cache, new: Tokens, *, in_place: bool = False, first: bool = False) -> Cache:
        """Append tokens to the cache, as `append` does. Variants may override it."""
        return append(state, new, window=self.settings.window, in_place=in_place, first=first)

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """Return an empty cache of `capacity` places, or as many as the window has.

        It is filled with zeros: a weight of zero times what is not a number would not be zero.
        """
        weight = self.readout.linear.weight
        places = min(capacity, self.settings.window or capacity)
        shape = batch, self.project.value_heads, places
        return Cache(
            weight.new_zeros(*shape, self.project.key_dim),
            weight.new_zeros(*shape, self.project.value_dim),
            torch.full((batch, places), EMPTY, device=weight.device),
            torch.zeros(batch, dtype=torch.int64, device=weight.device),
            self.project.init_state(batch),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return Hk (K + V) for each of the last `seq_len` tokens, or of the window."""
        kept = min(seq_len, self.settings.window or seq_len)
        per_token = self.project.value_heads * (self.project.key_dim + self.project.value_dim)
        return StateSize(cache=kept * per_token, convolution=self.project.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the mean over the positions of a sequence: token t sees t + 1 keys, at most the window."""
        window = min(self.settings.window or seq_len, seq_len)
        keys = (window * (window + 1) / 2 + (seq_len - window) * window) / seq_len
        key_dim, value_dim = self.attended_dims()
        attended = flops_per_token(heads=self.project.heads, key_dim=key_dim, value_dim=value_dim, keys=keys)
        return attended + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the scale, which must be free to grow.

        Recall over many keys needs scores well above log T.
        """
        return {} if self.scale is None else {"scale": Rule(decay=False)}

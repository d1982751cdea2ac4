"""Titans MAC: attention within segments, beside what Titans' memory recalls; it learns what this reads."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.attention import attention
from linbench.kernels.attention import flops_per_token as attention_flops
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.fast_weight import Step
from linbench.kernels.rotary import angles, rotate_first
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.heads import HeadProjection, Readout, share_input
from linbench.models.blocks.init import PUBLISHED_STD
from linbench.models.blocks.key_norms import key_norm, score_scale
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.positions import turned_dims
from linbench.models.blocks.segments import at_places, in_segments, unfinished
from linbench.models.titans import Titans
from linbench.models.titans_mag import GatingMemory, TitansMAGSettings


class TitansMACSettings(TitansMAGSettings):
    """Settings of Titans MAC. Published: those of Titans, attention within segments, persistent tokens."""

    feature_map: Literal["identity"] = Field("identity", description="attention reads keys as they are")
    positions: Literal["rope", "none"] = Field("rope", description="how a token knows where it stands")
    window: None = Field(None, description="a query sees the tokens of its segment")
    mini_batch: int = Field(
        16, ge=1, description="tokens of a segment, which attention reads and after which the memory is read"
    )
    inner_rate: float = Field(0.01, gt=0, description="largest learning rate of the memory")
    persistent: int = Field(4, ge=0, description="learned keys and values of each head that all queries see")


class Segment(NamedTuple):
    """State of the layer.

    memory: before the unfinished segment [B, H, N], in at least float32. q, k, v: of the segment's tokens so
    far [B, S, H, K or V], then zeros. seen: number of tokens so far [B]. conv: state of the convolution.
    """

    memory: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor
    conv: Any


class TitansMAC(GatingMemory, Mixer):
    """Titans MAC: attention within segments, beside what Titans' memory recalls; it learns what this reads.

        h_t = f(q_t; M_0),  y_t = RMSNorm(attention(q_t; P, h_s and token s, s <= t in the segment))
        S_t = eta_t S_{t-1} - theta_t d/dM |f(k'_t; M_0) - v'_t|^2 / 2,  M_t = alpha_t M_{t-1} + S_t
        o_t = y_t * sigmoid(RMSNorm(f(q'_t; M_t)))

    M_0 are the memory's weights before the segment. P are learned keys and values; those of h_s are linear in
    h_s. q', k' and v' are linear in y_t. eta, theta over inner_rate, and alpha are sigmoids of W y_t + b.
    f is that of `titans`. "Memory as context" of Behrouz, Zhong & Mirrokni 2024, arXiv:2501.00663.

    State: H times two copies of the network, of 2 inner_expand K^2 floats as an MLP: its weights before the
    segment, and the momentum; and H (2 K + V) floats for each token of an unfinished segment, at most one
    less than it has. The segment is computed again for every call that continues it.

    Known for: attention that decides what of the past it needs and what is worth learning. What stands in
    the segment it sees as it is; older tokens only as the memory recalls them for the segment's queries.

    Differences: the paper recalls with all queries of a segment at once; here a query sees the recall of its
    own and of earlier tokens, each in its token's place. The gate is read with a token's own weights M_t, not
    with those after the segment, which know later tokens. A segment has 16 tokens and is a mini-batch. The
    paper leaves open what is shared: here the memory recalls with attention's queries; h and y have linear
    maps of their own; P has no positions. The largest rate is 0.01, a tenth of that of `titans`: since the
    memory learns what was read of it, differences of rounding grow from segment to segment, and faster with
    the rate. Without the layer norm (`inner_norm`) they shrink, but a trained memory may diverge. Norms of
    both outputs and the sigmoid are those of `titans_mag`; the memory learns y after its norm, as it learns
    normed inputs in `titans`. The rest is as there. The output projection starts at zero
    (docs/decisions/0002).
    """

    name = "titans_mac"
    learner = Titans.learner._replace(
        memory="MLP of two layers, recalled beside the keys and values of a segment",
        retention="decay per head and token; attention drops a segment when it ends",
    )
    kernel_families: ClassVar[tuple[str, ...]] = (*Attention.kernel_families, "fast_weight")
    generation = "test-time training"
    Settings = TitansMACSettings
    controlled = Attention.controlled

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads = settings.heads
        self.project, self.readout = HeadProjection(settings, layer), Readout(settings, layer)
        keys, values = self.widths = self.project.key_dim, self.project.value_dim
        self.start_memory()
        self.turned = turned_dims(keys, settings.rope_fraction) if settings.positions == "rope" else 0
        self.scale = score_scale(settings, keys)
        self.persistent: nn.Parameter | None = None
        if settings.persistent:
            drawn = nn.init.normal_(torch.empty(settings.persistent, heads, keys + values), std=PUBLISHED_STD)
            self.persistent = nn.Parameter(drawn)
        self.of_recalled = Affine(heads * values, heads * (keys + values), bias=False)
        self.of_attended = Affine(heads * values, heads * (2 * keys + values), bias=False)
        self.context_norm, self.q_norm, self.k_norm = (key_norm(settings.qk_norm, keys) for _ in range(3))

    @property
    def gate_inputs(self) -> int:
        """Width of what attention reads, of all heads."""
        return int(self.settings.heads * self.project.value_dim)

    def make_step(self) -> Step:
        """Return Titans' step, with a state that is always one between two segments."""
        return super().make_step()._replace(whole=True)

    def forward(self, x: Tensor, state: Segment | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = share_input(x, self, self.readout)
        *new, conv = self.project(given, state and state.conv)
        if state is None:
            return Out(self.readout(self.mix(new, None, None)[0], given), None, cross_layer)
        size, place = self.step.size, state.seen % self.step.size
        end = place + x.shape[1]
        tokens = [in_segments(kept, each, place, size) for kept, each in zip(state[1:4], new, strict=True)]
        o, memory = self.mix(tokens, state.memory, end)
        q, k, v = (unfinished(each, end, size, state.q.shape[1]) for each in tokens)
        y = self.readout(at_places(o, place, x.shape[1]), given)
        return Out(y, Segment(memory, q, k, v, state.seen + x.shape[1], conv), cross_layer)

    def mix(self, tokens: list[Tensor], memory: Any, end: Tensor | None) -> tuple[Tensor, Any]:
        """Return o [B, N, H, V], one segment after the other, and the memory before the unfinished one.

        Args:
            tokens: q, k, v [B, N, H, K or V], from the first place of a segment on.
            memory: before these; None is the start.
            end: number of tokens of each row [B], of which what stands in later places is not; None is all.
        """
        outputs, size = [], self.step.size
        for start in range(0, tokens[0].shape[1], size):
            q, k, v = (each[:, start : start + size] for each in tokens)
            o, after = self.mix_segment(q, k, v, memory)
            memory = (
                after if end is None else torch.where((end >= start + size)[:, None, None], after, memory)
            )
            outputs.append(o)
        return torch.cat(outputs, dim=1), memory

    def mix_segment(self, q: Tensor, k: Tensor, v: Tensor, memory: Any) -> tuple[Tensor, Tensor]:
        """Compute the equation for a segment: return o [B, L, H, V] and the memory after its end."""
        recalled = self._split(self.of_recalled, self.recall(q, memory), self.widths)
        attended = self.attend(q, (self.context_norm(recalled[0]), k), (recalled[1], v))
        y = self.attention_norm(attended)
        asked, keys, values = self._split(self.of_attended, y, (self.widths[0], *self.widths))
        learned = self.q_norm(asked), self.k_norm(keys), values
        read, memory = self.learn(SharedInput(y.flatten(2), ()), learned, memory, None)
        return y * self.as_gate(read), memory

    def _split(self, project: Affine, x: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Return what a linear map makes of x [B, L, H, V], for each head in parts of these widths."""
        parts: tuple[Tensor, ...] = project(x.flatten(2)).unflatten(-1, (-1, sum(widths))).split(widths, -1)
        return parts

    def attend(self, q: Tensor, keys: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> Tensor:
        """Return what queries [B, L, H, K] read of persistent tokens and, up to their own, of each tensor."""
        places = torch.arange(q.shape[1], device=q.device)[None]
        at = [places] * len(keys)
        if self.turned:
            turn = angles(places, self.turned, at_least_float32(q.dtype))
            q, keys = rotate_first(q, *turn), tuple(rotate_first(each, *turn) for each in keys)
        if self.persistent is not None:
            k, v = torch.split(self.persistent.expand(len(q), -1, -1, -1), [*self.widths], dim=-1)
            keys, values = (self.context_norm(k), *keys), (v, *values)
            at = [places.new_zeros(1, k.shape[1]), *at]  # no later than any query
        return attention(
            q,
            torch.cat(keys, dim=1),
            torch.cat(values, dim=1),
            query_positions=places,
            key_positions=torch.cat(at, dim=1),
            scale=self.scale,
            empty_is_zero=True,
        )

    def init_state(self, batch: int, *, capacity: int) -> Segment:
        """Return the initial memory and no tokens."""
        weight, shape = self.readout.linear.weight, (batch, self._kept(capacity), self.settings.heads)
        q, k, v = (weight.new_zeros(*shape, width) for width in (self.widths[0], *self.widths))
        seen = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        memory = self.initial_memory(weight, batch)
        return Segment(memory, q, k, v, seen, self.project.init_state(batch))

    def _kept(self, seq_len: int) -> int:
        """Return how many tokens an unfinished segment may have."""
        return min(seq_len, self.step.size - 1)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return those of the memory and the convolution, and H (2 K + V) for each token of a segment."""
        token = self.settings.heads * (2 * self.widths[0] + self.widths[1])
        kept = self._kept(seq_len) * token
        return StateSize(self.memory_floats(), kept, convolution=self.project.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the mean over a sequence: recall, attention within segments, and the memory's."""
        heads, (full, rest) = self.settings.heads, divmod(seq_len, self.step.size)
        seen = (full * self.step.size * (self.step.size + 1) + rest * (rest + 1)) / seq_len  # twice the mean
        attended = attention_flops(
            heads=heads,
            key_dim=self.widths[0],
            value_dim=self.widths[1],
            keys=self.settings.persistent + seen,
        )
        recalled = 2 * heads * sum(rows * columns for rows, columns in self.shapes)
        return float(attended + recalled + self.memory_flops(seq_len))

    def parameter_rules(self) -> dict[str, Rule]:
        """Return those of the memory, and no weight decay for persistent tokens and the scale."""
        free = {"persistent": self.persistent, "scale": self.scale}
        free_names = [name for name, parameter in free.items() if parameter is not None]
        return self.memory_rules() | {name: Rule(decay=False) for name in free_names}

"""The model around the mixers: embedding, pre-norm residual layers, and a head where answers are due."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.hashing import stable_key
from linbench.common.settings import ABSENT
from linbench.common.task_io import IO
from linbench.models.base import LayerInfo, Mixer, Rule, StateSize
from linbench.models.blocks.canon import CANON, NONE, Canon, Sites
from linbench.models.blocks.channel_mixers import CHANNEL_FAMILIES, CHANNEL_MIXERS, ChannelMixer, SwiGLU
from linbench.models.blocks.convolution import ShortConvolution
from linbench.models.blocks.embeddings import CodeDecoder, head_loss, make_embedding, make_head
from linbench.models.blocks.heads import HeadProjection
from linbench.models.blocks.init import BranchSettings, draw_published
from linbench.models.blocks.linear import Affine, Linear
from linbench.models.blocks.norms import CentredRMSNorm, HeadLayerNorm, RMSNorm
from linbench.models.blocks.tied_layers import homes, use_again
from linbench.models.blocks.token_shift import TokenShift
from linbench.models.costs import layer_flops, map_flops

VERSION = 2
"""Raise it with every change here that changes results; it is part of the identity of every cell."""

FAMILIES = ("embedding", "norms", "cross_entropy")
"""Kernel families that the backbone uses, besides those of a channel mixer."""


class BackboneSettings(BranchSettings):
    """Settings of everything around the mixers."""

    d_model: int = Field(64, ge=1, le=1 << 17, description="width of the residual stream")
    layers: int = Field(
        2,
        ge=1,
        le=1024,
        description="number of layers; a pattern is repeated to fill them, and a system until it has as many",
    )
    loops: int = Field(
        1,
        ge=1,
        le=1024,
        description=(
            "how often all layers are run in turn, each time with the same weights and with a state of its"
            " own: looped layers (2502.17416)"
        ),
        json_schema_extra={ABSENT: 1},
    )
    norm: Literal["rms", "rms_centred", "layer"] = Field(
        "rms",
        description=(
            "norm before each mixer, each channel mixer and the head; rms_centred has weights 1 + w, decaying"
            " w"
        ),
    )
    tied: str = Field(
        "none",
        description=(
            "a model's name: its layers, with their norms and channel mixers, are one layer with one set of"
            " weights, used in several places (2405.16712)"
        ),
        json_schema_extra={ABSENT: "none"},
    )
    channel_mixer: Literal["swiglu", "none", "identity", "rwkv4", "rwkv6", "rwkv7", "own"] = Field(
        "swiglu",
        description=(
            "what follows each mixer; identity adds the norm of the residual stream, as zoology's absent MLP"
            " does; own is what each was published with"
        ),
    )
    channel_width: int | None = Field(
        None,
        ge=1,
        le=1 << 20,
        description="hidden width of the channel mixer; null is 8/3 d_model for swiglu, 4 d_model for rwkv's",
    )
    tie_embeddings: bool = Field(True, description="one matrix for embedding and head")
    init: Literal["default", "published"] = Field(
        "default",
        description=(
            "what linear maps and embeddings start at: torch's default and N(0, 1 / d_model), or N(0, 0.02)"
            " as in published models, unless the variant chooses (docs/initial-values.md)"
        ),
        json_schema_extra={ABSENT: "default"},
    )
    embedding_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the embedded inputs that training sets to zero, the rest scaled up",
    )
    canon: Sites = CANON


def kernel_families(settings: BackboneSettings, mixers: Iterable[type[Mixer]]) -> tuple[str, ...]:
    """Return the kernel families of the backbone and of the channel mixers that it has with these mixers."""
    own = (mixer.channel_mixer for mixer in mixers)
    kinds = own if settings.channel_mixer == "own" else (settings.channel_mixer,)
    canon = () if settings.canon == NONE else ("short_convolution",)
    return *FAMILIES, *(family for kind in kinds for family in CHANNEL_FAMILIES.get(kind, ())), *canon


class Layer(NamedTuple):
    """A mixer to build: its class and its settings."""

    mixer: type[Mixer]
    settings: Any


class LayerState(NamedTuple):
    """State of one layer.

    mixer: the mixer's state. channels: the channel mixer's, None without one. canon: of the canon layers that
    stand before these two [B, 3, D], None without them.
    """

    mixer: Any = None
    channels: Tensor | None = None
    canon: tuple[Tensor | None, Tensor | None] = (None, None)


def _add_and_norm(x: Tensor, added: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the residual stream plus what a branch adds to it, and the norm of the sum."""
    if added is not None and isinstance(norm, RMSNorm):
        return norm.after(x, added)
    x = x if added is None else x + added
    return x, norm(x)


def _refuse_canon(sites: str, mixer: nn.Module, channel_mixer: str) -> None:
    """Raise UserError if a layer has no place for one of its canon layers."""
    name = getattr(mixer, "name", type(mixer).__name__)  # a plain module has none
    projections = [part for part in mixer.modules() if isinstance(part, HeadProjection)]
    missing = None
    if "B" in sites and not any(part.takes_canon for part in projections):
        missing = f"B needs q, k and v of heads, which {name} does not have"
    elif channel_mixer == "none" and set(sites) & set("CD"):
        missing = f"C and D need a channel mixer, and that of {name} is none"
    elif "D" in sites and CHANNEL_MIXERS[channel_mixer] is not SwiGLU:
        missing = f"D needs swiglu, and the channel mixer of {name} is {channel_mixer}"
    if missing is not None:
        raise UserError(f"model.canon = {sites}: {missing}; leave out what is not there.")


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "rms": RMSNorm,
    "rms_centred": CentredRMSNorm,
    "layer": nn.LayerNorm,
}


class Backbone(nn.Module):
    """A residual model: x <- x + mixer(norm(x)); x <- x + channel_mixer(norm(x)); logits = head(norm(x)).

    The head is applied only at the positions of answers. With `loops` the layers are run several times, each
    time on the residual stream that the last time left. arXiv:2502.17416. Tied layers are one module that
    stands in several places, each with a state of its own.
    """

    def __init__(self, settings: BackboneSettings, layers: Sequence[Layer], io: IO, *, seed: int) -> None:
        """Initialise every part under a random state keyed by (seed, part), so that parts are independent."""
        super().__init__()
        self.settings = settings
        width, norm = settings.d_model, NORMS[settings.norm]
        mixers: list[nn.Module] = []
        channel_mixers: dict[str, nn.Module] = {}  # by the layer's index: a layer may have none
        canons: dict[str, nn.Module] = {}  # by site and index
        # all parts are drawn on the CPU; torch.manual_seed would change the generators of GPUs, too
        set_seed = torch.default_generator.manual_seed
        home_of = homes(settings.tied, layers)
        with torch.random.fork_rng(devices=[]):
            for index, layer in enumerate(layers):
                home = home_of[index]
                if home != index:
                    mixers.append(mixers[home])
                    for parts in (channel_mixers, canons):
                        use_again(parts, home, index)
                    continue
                sites = "" if settings.canon == NONE else settings.canon
                place = LayerInfo(index, len(layers), width, sites)
                set_seed(stable_key("mixer", seed, index))
                mixers.append(self._started(layer.mixer(layer.settings, place)))
                set_seed(stable_key("channel mixer", seed, index))
                kind = settings.channel_mixer
                if kind == "own":
                    kind = layer.mixer.channel_mixer  # type: ignore[assignment]
                if kind != "none":
                    made = CHANNEL_MIXERS[kind](place, settings.channel_width, silent=settings.silent)
                    channel_mixers[str(index)] = self._started(made)
                _refuse_canon(sites, mixers[-1], kind)
                set_seed(stable_key("canon", seed, index))
                canons.update({f"{site}{index}": Canon(width) for site in "AC" if site in sites})
            set_seed(stable_key("embedding", seed))
            self.embedding = make_embedding(io, width)
            self.head = make_head(io, width)
            self.decoder = CodeDecoder(width) if io.readout == "code" else None
            for part in (self.embedding, self.head, self.decoder):
                if part is not None:
                    self._started(part, nn.Linear, nn.Embedding)
        if settings.tie_embeddings and io.vocab_in is not None and io.vocab_in == io.vocab_out:
            self.head.weight = self.embedding.get_parameter("weight")
        self.mixers = nn.ModuleList(mixers)
        self.channel_mixers = nn.ModuleDict(channel_mixers)
        self.canons = nn.ModuleDict(canons)
        norms = [(norm(width), norm(width)) for _ in mixers]
        self.mixer_norms = nn.ModuleList(norms[home][0] for home in home_of)
        self.channel_norms = nn.ModuleDict({name: norms[home_of[int(name)]][1] for name in channel_mixers})
        self.final_norm = norm(width)
        self.dropout = nn.Dropout(settings.embedding_dropout) if settings.embedding_dropout else nn.Identity()

    def _started(self, part: nn.Module, *kinds: type[nn.Module]) -> nn.Module:
        """Draw a part's maps anew if they shall start as published, and return it.

        Of mixers and channel mixers these are linbench's maps: a user's own start as the user says.
        """
        if self.settings.init == "published":
            draw_published(part, *(kinds or (Linear, Affine)))
        return part

    def forward(self, inputs: Tensor, positions: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return logits [B, N, vocab_out] or vectors [B, N, d_out] at `positions`; or the mean loss.

        With targets it is the loss: the negative log-likelihood, for which the logits are never in memory at
        once, or the squared error of vectors.

        Args:
            inputs: as a task gives them, see `tasks.base.Batch`.
            positions: [B, N].
            targets: ids [B, N] or vectors [B, N, d_out].
        """
        stream, branch, _ = self._layers(inputs)
        if self.decoder is None:
            at = positions[:, :, None].expand(-1, -1, stream.shape[-1])
            x = stream.gather(1, at) + branch.gather(1, at)
        else:
            code = stream[:, -1] + branch[:, -1]
            x = self.decoder(code, positions)
        x = self.final_norm(x)
        y: Tensor = self.head(x) if targets is None else head_loss(x, self.head, targets)
        return y

    def hidden(
        self, inputs: Tensor, states: Sequence[LayerState] | None = None
    ) -> tuple[Tensor, list[LayerState]]:
        """Return the residual stream [B, T, D] and the states after the last token.

        Args:
            inputs: [B, T], [B, T, F] or [B, T, d_in].
            states: one for each layer of each loop, in the order in which they run; None starts the sequences
                here.
        """
        stream, branch, after = self._layers(inputs, states)
        return stream + branch, after

    def _layers(
        self, inputs: Tensor, states: Sequence[LayerState] | None = None
    ) -> tuple[Tensor, Tensor, list[LayerState]]:
        """Return the stream before its last sum, the last branch, and the states.

        The sum is left to the caller, which needs it only at the positions of answers.
        """
        x = self.dropout(self.embedding(inputs))
        branch = None
        after: list[LayerState] = []
        for _ in range(self.settings.loops):
            cross_layer = None  # values are for later layers of the same loop
            for index, mixer in enumerate(self.mixers):
                before = states[len(after)] if states else LayerState()
                (canon_a, canon_c), name, channels = before.canon, str(index), None
                x, normed = _add_and_norm(x, branch, self.mixer_norms[index])
                if f"A{name}" in self.canons:
                    normed, canon_a = self.canons[f"A{name}"](normed, canon_a)
                branch, state, cross_layer = mixer(normed, before.mixer, cross_layer)
                if name in self.channel_mixers:
                    x, normed = _add_and_norm(x, branch, self.channel_norms[name])
                    if f"C{name}" in self.canons:
                        normed, canon_c = self.canons[f"C{name}"](normed, canon_c)
                    branch, channels = self.channel_mixers[name](normed, before.channels)
                after.append(LayerState(state, channels, (canon_a, canon_c)))
        return x, torch.zeros_like(x) if branch is None else branch, after

    def first_token_shares(self, inputs: Tensor) -> dict[int, Tensor]:
        """Return what share of its weights each head [H] gives to the first token, by layer.

        Layers without such weights are left out; layers of all loops count on. `Mixer.first_token_share` says
        more.

        Args:
            inputs: as for `forward`.
        """
        read: list[Tensor] = []

        def keep(mixer: nn.Module, given: tuple[Any, ...]) -> None:
            read.append(given[0])

        hooks = [part.register_forward_pre_hook(keep) for part in dict.fromkeys(self.mixers)]
        try:
            self.hidden(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        ran = self._mixers() * self.settings.loops
        shares = [mixer.first_token_share(x) for mixer, x in zip(ran, read, strict=True)]
        return {i: share for i, share in enumerate(shares) if share is not None}

    def init_states(self, batch: int, *, capacity: int) -> list[LayerState]:
        """Return one state for each layer of each loop, for sequences of at most `capacity` tokens."""

        def zeros(kind: nn.ModuleDict, name: str) -> Any:
            return kind[name].init_state(batch) if name in kind else None  # type: ignore[operator]

        return [
            LayerState(
                mixer.init_state(batch, capacity=capacity),
                zeros(self.channel_mixers, str(i)),
                (zeros(self.canons, f"A{i}"), zeros(self.canons, f"C{i}")),
            )
            for _ in range(self.settings.loops)
            for i, mixer in enumerate(self._mixers())
        ]

    def state_size(self, seq_len: int) -> StateSize | None:
        """Return the floats carried after `seq_len` tokens, summed over the layers of all loops.

        None if a layer does not declare its own.
        """
        total = StateSize(
            convolution=sum(part.state_floats() for part in self.canons.values() if isinstance(part, Canon))
        )
        for part in self.channel_mixers.values():
            if isinstance(part, ChannelMixer):
                total = total.plus(part.state_floats())
        for mixer in self._mixers():
            size = mixer.state_floats(seq_len)
            if size is None:
                return None
            total = total.plus(size)
        return StateSize(*(self.settings.loops * floats for floats in total))

    def _mixers(self) -> list[Mixer]:
        return [mixer for mixer in self.mixers if isinstance(mixer, Mixer)]

    def parameter_count(self) -> int:
        """Return the number of trained parameters; a tied matrix counts once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def flops_per_token(self, seq_len: int, answers: int) -> float | None:
        """Return forward operations per token, averaged over a sequence.

        Matrix products, convolutions and recurrences count; a multiply-add counts two. None if a layer does
        not declare its own.

        Args:
            seq_len: tokens of a sequence.
            answers: positions of a sequence at which the head is applied.
        """
        of_head = self.head.weight.numel()
        if self.decoder is not None:
            of_head += sum(x.numel() for x in self.decoder.parameters() if x.dim() == 2)
        around = (*self.channel_mixers.values(), *self.canons.values())
        looped: float = sum(map(map_flops, around))
        for mixer in self._mixers():
            own = layer_flops(mixer, seq_len)
            if own is None:
                return None
            looped += own
        return 2 * of_head * answers / seq_len + map_flops(self.embedding) + self.settings.loops * looped

    def parameter_rules(self) -> dict[str, Rule]:
        """Return the rule of every parameter by name: the mixer's, or the default."""
        rules = {
            f"mixers.{i}.{name}": rule
            for i, mixer in enumerate(self._mixers())
            for name, rule in mixer.parameter_rules().items()
        }
        # the default rule goes by shape, and these are matrices by their shape alone
        for name, module in self.named_modules():
            if isinstance(module, ShortConvolution | HeadLayerNorm):
                rules[f"{name}.weight"] = Rule(decay=False)
            if isinstance(module, HeadLayerNorm):
                rules[f"{name}.bias"] = Rule(decay=False)
            if isinstance(module, CentredRMSNorm):
                rules[f"{name}.weight"] = Rule(decay=True)
            if isinstance(module, TokenShift):
                rules[f"{name}.mix"] = Rule(decay=False)
        return {name: rules.get(name, Rule()) for name, _ in self.named_parameters()}

"""The contract of a sequence mixer: from (x, state) to (y, state)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from linbench.common.settings import Settings
from linbench.models.learner import Learner

GENERATIONS = (
    "softmax",
    "linear attention",
    "gates and decay",
    "delta rule",
    "test-time training",
    "softmax revisited",
    "other",
)
"""Groups of variants in the order of their history.

Softmax keeps everything; linear attention keeps a sum; gates let that sum decay; the delta rule corrects it,
one gradient step a token; test-time training takes better steps towards what fits keys and values, solves for
it, or trains a larger network (2501.12352); "softmax revisited" brings gates and corrections back to softmax;
"other" is for controls.
"""


@dataclass(frozen=True)
class LayerInfo:
    """Place of a layer: its index (from 0) among `count` layers of width `d_model`.

    canon: sites of the model's canon layers (`blocks/canon.py`), of which B and D are inside of layers.
    """

    index: int
    count: int
    d_model: int
    canon: str = ""


class Out(NamedTuple):
    """Result of a mixer.

    y: [B, T, D]. state: the state after the last token, None if none was kept. cross_layer: values for later
    layers, one for each token.
    """

    y: Tensor
    state: Any = None
    cross_layer: Any = None


class StateSize(NamedTuple):
    """Number of floats that one sequence carries from token to token, by kind."""

    recurrent: int = 0
    cache: int = 0
    convolution: int = 0
    shift: int = 0

    @property
    def total(self) -> int:
        """Sum of all kinds; models are matched on this number."""
        return sum(self)

    def plus(self, other: "StateSize") -> "StateSize":
        """Add another size, kind by kind."""
        return StateSize(*(a + b for a, b in zip(self, other, strict=True)))


class Rule(NamedTuple):
    """The treatment of a parameter by the optimizer.

    decay: whether weight decay applies (None: to matrices only). lr_scale: factor on the learning rate.
    """

    decay: bool | None = None
    lr_scale: float = 1.0


class Mixer(nn.Module, ABC):
    """A causal layer from [B, T, D] to [B, T, D] that can be stopped after any token and continued.

    A variant's docstring is its card: users read it in `linbench show model NAME`. A mixer initialises itself
    in `__init__`, which runs under a random state of its own.
    """

    name: ClassVar[str]
    """Name on the command line and in results."""
    version: ClassVar[int] = 1
    """Raise it with every change to the file that changes results; it is part of the identity of every cell.
    """
    kernel_families: ClassVar[tuple[str, ...]] = ()
    """Kernel families that this mixer uses; empty if it brings its own code.

    Their versions are part of the identity of every cell, except for versions of 0.
    """
    generation: ClassVar[str] = "other"
    """One of `GENERATIONS`, or a word of the user's own."""
    year: ClassVar[int | None] = None
    """The year of publication, where the docstring names no arXiv id, which begins with the year."""
    learner: ClassVar[Learner]
    """The layer as an online learner. Every variant that ships declares its own; plug-ins need none."""
    Settings: ClassVar[type[Settings]] = Settings
    controlled: ClassVar[dict[str, Any] | None] = None
    """Settings of the controlled form, in which only the recurrence may differ; None: there is no such form.
    """
    channel_mixer: ClassVar[str] = "swiglu"
    """Channel mixer of the published model, a name in `blocks/channel_mixers.py`.

    `model.channel_mixer=own` selects it.
    """
    is_plain_module: ClassVar[bool] = False
    """True if this wraps a plain module, whose constructor is given only what the user sets."""
    streams: ClassVar[bool] = True
    """False if no state can be carried on, as of a plain module without `init_state`."""
    own_names: ClassVar[Mapping[str, str]] = {}
    """A plain module's own names of settings, by the names that linbench's layers have for them."""
    only_at_start: ClassVar[tuple[str, ...]] = ()
    """Names of modules whose parameters only the start of a sequence reads: learned initial states."""
    causality: ClassVar[Literal["exact", "rounding"]] = "exact"
    """"rounding" if later tokens may change the rounding of earlier outputs, otherwise "exact"."""
    gradient: ClassVar[Literal["exact", "surrogate"]] = "exact"
    """"surrogate" if some gradients are by definition not those of the outputs, which have steps."""

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__()
        self.settings = settings
        self.layer = layer

    @abstractmethod
    def forward(self, x: Tensor, state: Any = None, cross_layer: Any = None) -> Out:
        """Mix x [B, T, D], T >= 1, continuing from `state`, which is never written in place.

        With `state=None` the sequence starts here and no state need be returned. To continue later, start
        from `init_state` instead.
        """

    @abstractmethod
    def init_state(self, batch: int, *, capacity: int) -> Any:
        """Return the state before the first token: a tree of tensors, batch first.

        Args:
            batch: number of sequences.
            capacity: the most tokens that a sequence will ever have.
        """

    def prefill(self, x: Tensor, *, capacity: int, cross_layer: Any = None) -> Out:
        """Mix the first tokens x [B, T, D] of sequences and return the state to continue from.

        This is `forward` from `init_state`. A variant may override it with a faster way that does not read
        the empty state.
        """
        out: Out = self(x, self.init_state(x.shape[0], capacity=capacity), cross_layer)
        return out

    def decode(self, x: Tensor, state: Any, cross_layer: Any = None) -> Out:
        """Mix the next tokens x [B, T, D], mostly one, and overwrite `state` where that is cheaper.

        This is `forward`, except that tensors of `state` may be written in place, so that a cache need not be
        copied for every token. Continue from the returned state only. No gradient flows through it.
        """
        out: Out = self(x, state, cross_layer)
        return out

    @abstractmethod
    def state_floats(self, seq_len: int) -> StateSize | None:
        """Return the number of floats carried after `seq_len` tokens; None if it is not declared."""

    @abstractmethod
    def recurrence_flops(self, seq_len: int) -> float | None:
        """Return forward operations per token besides those of linear layers and convolutions.

        Averaged over a sequence of `seq_len` tokens; a multiply-add counts two. None if it is not declared.
        """

    def first_token_share(self, x: Tensor) -> Tensor | None:
        """Return what share of its weights each head [H] gives to the first token of x [B, T, D], T > 1.

        It is the mean over all tokens but the first. Where it is large for no reason of the task, that token
        is an attention sink (2309.17453). None for layers that do not weigh earlier tokens.
        """
        return None

    def parameter_rules(self) -> dict[str, Rule]:
        """Return rules, by parameter name, for parameters that the optimizer must not treat by default.

        The default: no weight decay for parameters marked `_no_weight_decay`, the mark that Mamba's and other
        code uses.
        """
        return {
            name: Rule(decay=False)
            for name, parameter in self.named_parameters()
            if getattr(parameter, "_no_weight_decay", False)
        }

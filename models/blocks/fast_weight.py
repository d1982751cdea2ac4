"""Base class of variants whose memory is a small network per head, trained while the sequence is read."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.fast_weight import Network, Step, fast_weight, flops_per_token, initial_state
from linbench.kernels.rotary import rotate
from linbench.models.base import Mixer, Out, Rule, StateSize
from linbench.models.blocks.heads import FAMILIES, HeadProjection, HeadSettings, Readout, share_input
from linbench.models.blocks.init import PUBLISHED_STD
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.norms import HeadLayerNorm
from linbench.models.blocks.positions import angles, positions_after, require_even


class FastWeightSettings(HeadSettings):
    """Settings of a memory that is trained by mini-batches."""

    mini_batch: int = Field(
        16, ge=1, description="tokens of a mini-batch, whose gradients are those at the weights before it"
    )
    inner_rate: float = Field(1.0, gt=0, description="largest learning rate of the memory")


class NormedMemorySettings(Settings):
    """Settings of a memory f(x) that may be x + LN(f(x))."""

    inner_norm: bool = Field(True, description="layer norm of the memory's output, with weights per head")
    inner_residual: bool = Field(
        True, description="whether the memory adds its input to its output, so that it learns v - k"
    )


class FastWeightState(NamedTuple):
    """State of a layer whose memory is a network.

    memory: of each head, weights, and what its step carries beside them [B, H, N], in at least float32. seen:
    number of tokens so far [B]. conv: what the short convolution remembers, None without one.
    """

    memory: Tensor
    seen: Tensor
    conv: Tensor | None


class InitialMemory(nn.Module):
    """Weights of a network before the first token, one [H, I, O] for each map.

    They are learned from N(0, std) with biases of zero, or zero for good.

    Args:
        shapes: rows and columns of every map.
        heads: number of heads.
        bias: whether the last rows are biases.
        stds: standard deviation of each map's weights.
        learned: whether they are learned.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        heads: int,
        *,
        bias: bool,
        stds: Sequence[float],
        learned: bool = True,
    ) -> None:
        super().__init__()
        self.shapes, self.heads = tuple(shapes), heads
        self.maps = nn.ParameterList()
        for (rows, columns), std in zip(shapes, stds, strict=True) if learned else ():
            drawn = nn.init.normal_(torch.empty(heads, rows, columns), std=std)
            if bias:
                nn.init.zeros_(drawn[:, -1])
            self.maps.append(nn.Parameter(drawn))

    def forward(self, like: Tensor) -> tuple[Tensor, ...]:
        """Return the weights, on the device and in the dtype of a tensor if they are zero."""
        return tuple(self.maps) or tuple(like.new_zeros(self.heads, *shape) for shape in self.shapes)


class Gates(NamedTuple):
    """Gates of tokens: rates [B, T, H] or [B, T, H, M], logarithms of momentum and of what is kept."""

    rates: Tensor
    log_momentum: Tensor | None = None
    log_keep: Tensor | None = None


class FastWeightMixer(Mixer):
    """A mixer whose memory is a network per head. A variant names network and step, and makes the gates."""

    kernel_families: ClassVar[tuple[str, ...]] = ("fast_weight", "rotary", *FAMILIES)
    generation = "test-time training"
    only_at_start = ("initial",)
    Settings: ClassVar[type[Settings]] = FastWeightSettings

    def __init__(self, settings: Any, layer: Any) -> None:
        super().__init__(settings, layer)
        self.project = HeadProjection(settings, layer)
        self.readout = Readout(settings, layer)
        self.network, self.step = self.make_network(), self.make_step()
        key_dim, value_dim = self.project.key_dim, self.project.value_dim
        if self.network.residual and key_dim != value_dim:
            raise UserError(
                f"A memory that adds its input to its output needs keys as wide as values, not {key_dim} and"
                f" {value_dim}; choose expand_k = expand_v and a feature map that keeps the dimension, or"
                " model.inner_residual = false."
            )
        if self.turns:
            require_even(key_dim)
        self.shapes = self.network.shapes(key_dim, self.hidden, value_dim)
        self.initial = InitialMemory(
            self.shapes,
            settings.heads,
            bias=self.network.bias,
            stds=self.initial_stds(),
            learned=getattr(settings, "initial", "learned") == "learned",
        )

    @abstractmethod
    def make_network(self) -> Network:
        """Return the network."""

    @abstractmethod
    def make_step(self) -> Step:
        """Return the step that a mini-batch makes."""

    @abstractmethod
    def gates(self, x: SharedInput) -> Gates:
        """Return learning rates and gates of the layer's input."""

    def initial_stds(self) -> list[float]:
        """Return the standard deviation of every map's initial weights."""
        return [PUBLISHED_STD] * len(self.shapes)

    @property
    def hidden(self) -> int:
        """Width of the network's hidden layer."""
        return 4 * self.project.key_dim

    @property
    def turns(self) -> bool:
        """True if q and k are rotated by their place in the mini-batch."""
        return False

    def norm(self) -> tuple[Tensor, Tensor] | None:
        """Return weight and bias of the norm of the network's output."""
        return None

    def scales(self) -> Tensor | None:
        """Return the factor on a mini-batch's change, by the place of who reads it."""
        return None

    def forward(self, x: Tensor, state: FastWeightState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        seen = None if state is None else state.seen
        if self.turns:
            q, k = self._rotate(q, k, seen)
        gates = self.gates(given)
        o, memory = fast_weight(
            q,
            k,
            v,
            gates.rates,
            self.initial(q),
            network=self.network,
            step=self.step,
            norm=self.norm(),
            scales=self.scales(),
            log_momentum=gates.log_momentum,
            log_keep=gates.log_keep,
            state=None if state is None else state.memory,
            seen=seen,
        )
        before = torch.zeros(len(x), dtype=torch.int64, device=x.device) if seen is None else seen
        return Out(self.readout(o, given), FastWeightState(memory, before + x.shape[1], conv), cross_layer)

    def prefill(self, x: Tensor, *, capacity: int, cross_layer: Any = None) -> Out:
        """Mix the first tokens as `Mixer.prefill` says, whole mini-batches from the first on."""
        out: Out = self(x, None, cross_layer)
        return out

    def _rotate(self, q: Tensor, k: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rotate q and k by where they stand in their mini-batch, after `seen` tokens [B]."""
        positions = positions_after(seen, q)
        turned = angles(positions % self.step.size, self.project.key_dim, at_least_float32(q.dtype))
        return rotate(q, *turned), rotate(k, *turned)

    def init_state(self, batch: int, *, capacity: int) -> FastWeightState:
        """Return the initial memory; the size does not depend on `capacity`."""
        weight = self.readout.linear.weight
        memory = initial_state(self.initial(weight), self.step, batch)
        seen = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        return FastWeightState(memory, seen, self.project.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return weights, what an unfinished mini-batch has gathered, momentum, and the convolution's."""
        recurrent = self.settings.heads * self.step.floats(self.shapes)
        return StateSize(recurrent=recurrent, convolution=self.project.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, token by token, and of the feature map."""
        scaled = self.scales() is not None
        heads = self.settings.heads
        each = flops_per_token(self.shapes, self.step, heads=heads, length=seq_len, scaled=scaled)
        return each + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the initial memory."""
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name.startswith("initial.")}


class NormedMemory(FastWeightMixer):
    """A mixer whose memory's output may have a layer norm, which is learned with the layer."""

    def __init__(self, settings: Any, layer: Any) -> None:
        super().__init__(settings, layer)
        self.inner_norm = (
            HeadLayerNorm(settings.heads, self.project.value_dim) if settings.inner_norm else None
        )

    def norm(self) -> tuple[Tensor, Tensor] | None:
        """Return weight and bias of the memory's norm."""
        norm = self.inner_norm
        return None if norm is None or norm.bias is None else (norm.weight, norm.bias)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the initial memory and its norm."""
        names = ("inner_norm.weight", "inner_norm.bias") if self.inner_norm else ()
        return super().parameter_rules() | {name: Rule(decay=False) for name in names}

"""A memory that is a small network per head, trained while a sequence is read: what its mixers share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.kernels.fast_weight import Network, Step, fast_weight, flops_per_token, initial_state, read
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.heads import HeadProjection, HeadSettings
from linbench.models.blocks.init import PUBLISHED_STD
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.norms import HeadLayerNorm


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
    """Gates of tokens: rates [B, T, H] or [B, T, H, M], others [B, T, H], as `fast_weight` takes them."""

    rates: Tensor
    log_momentum: Tensor | None = None
    log_keep: Tensor | None = None
    step_sizes: Tensor | None = None


class TrainedMemory(nn.Module, ABC):
    """The part of a mixer that has the memory. A variant names network and step, and makes the gates.

    The mixer has `settings`, `layer` and `project`, and calls `start_memory` when it has made these.
    """

    only_at_start: ClassVar[tuple[str, ...]] = ("initial",)
    sizes_steps: ClassVar[bool] = False
    """True if the gates have step sizes."""
    settings: Any
    layer: LayerInfo
    project: HeadProjection

    def start_memory(self) -> None:
        """Make the initial memory.

        Raises:
            UserError: if the network adds its input to its output and their widths differ.
        """
        self.network, self.step = self.make_network(), self.make_step()
        key_dim, value_dim = self.project.key_dim, self.project.value_dim
        if self.network.residual and key_dim != value_dim:
            raise UserError(
                f"A memory that adds its input to its output needs keys as wide as values, not {key_dim} and"
                f" {value_dim}; choose expand_k = expand_v and a feature map that keeps the dimension, or"
                " model.inner_residual = false."
            )
        self.shapes = self.network.shapes(key_dim, self.hidden, value_dim)
        self.initial = InitialMemory(
            self.shapes,
            self.settings.heads,
            bias=self.network.bias,
            stds=self.initial_stds(),
            learned=getattr(self.settings, "initial", "learned") == "learned",
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

    def norm(self) -> tuple[Tensor, Tensor] | None:
        """Return weight and bias of the norm of the network's output."""
        return None

    def scales(self) -> Tensor | None:
        """Return the factor on a mini-batch's change, by the place of who reads it."""
        return None

    def learn(
        self, x: SharedInput, heads: Sequence[Tensor], memory: Tensor | None, seen: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return what the memory answers [B, T, H, V], and the memory after the last token [B, H, N].

        Args:
            x: the layer's input, of which gates are made.
            heads: q, k [B, T, H, K] and v [B, T, H, V].
            memory: what to continue from; None is the start.
            seen: number of tokens before the first [B], given with a memory.
        """
        q, k, v = heads
        gates = self.gates(x)
        return fast_weight(
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
            step_sizes=gates.step_sizes,
            state=memory,
            seen=seen,
        )

    def recall(self, q: Tensor, memory: Tensor | None) -> Tensor:
        """Return what the memory answers [B, T, H, V] to q [B, T, H, K] with a mini-batch's first weights.

        It learns nothing. Without a memory these are the initial weights.
        """
        return read(q, self.initial(q), network=self.network, step=self.step, norm=self.norm(), state=memory)

    def initial_memory(self, like: Tensor, batch: int) -> Tensor:
        """Return the memory before the first token, on the device of a tensor and in its dtype."""
        return initial_state(self.initial(like), self.network, self.step, batch)

    def memory_floats(self) -> int:
        """Return weights, what an unfinished mini-batch has gathered, momentum, and a window's tokens."""
        return int(self.settings.heads * self.step.floats(self.network, self.shapes))

    def memory_flops(self, seq_len: int) -> float:
        """Return the operations of the memory for a token, token by token."""
        return flops_per_token(
            self.shapes,
            self.step,
            heads=self.settings.heads,
            length=seq_len,
            scaled=self.scales() is not None,
            sized=self.sizes_steps,
        )

    def memory_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the initial memory."""
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name.startswith("initial.")}


class NormedMemory(TrainedMemory):
    """A memory whose output may have a layer norm, which is learned with the layer."""

    def start_memory(self) -> None:
        """Make the initial memory and its norm."""
        super().start_memory()
        heads, value_dim = self.settings.heads, self.project.value_dim
        self.inner_norm = HeadLayerNorm(heads, value_dim) if self.settings.inner_norm else None

    def norm(self) -> tuple[Tensor, Tensor] | None:
        """Return weight and bias of the memory's norm."""
        norm = self.inner_norm
        return None if norm is None or norm.bias is None else (norm.weight, norm.bias)

    def memory_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the initial memory and its norm."""
        names = ("inner_norm.weight", "inner_norm.bias") if self.inner_norm else ()
        return super().memory_rules() | {name: Rule(decay=False) for name in names}

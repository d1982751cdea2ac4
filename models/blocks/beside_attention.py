"""Attention with a memory beside it, which reads and learns the same queries, keys and values."""

from abc import abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.base import Rule, StateSize
from linbench.models.blocks.caches import Cache, Tokens
from linbench.models.blocks.linear import SharedInput


class FastOut(NamedTuple):
    """Output [B, T, H, V] of a memory in the heads of attention, and the memory after it [B, F, N]."""

    o: Tensor
    memory: Tensor


class BesideAttention(Attention):
    """Attention whose cache carries the memory beside it. A variant reads the memory and joins the two."""

    kernel_families = (*Attention.kernel_families, "fast_weight")
    generation = "test-time training"

    @abstractmethod
    def read_memory(
        self, x: SharedInput, heads: Any, positions: Tensor, memory: Tensor | None, seen: Tensor | None
    ) -> FastOut:
        """Return what the memory reads, and the memory after it.

        Args:
            x: the layer's input.
            heads: q, k [B, T, H, K] and v [B, T, H, V], before positions rotate q and k.
            positions: of the tokens [B or 1, T].
            memory: what to continue from; None is the start.
            seen: number of tokens before the first [B], given with a memory.
        """

    @abstractmethod
    def join(self, attended: Tensor, read: Tensor) -> Tensor:
        """Return one output [B, T, H, V] of attention's and the memory's."""

    @abstractmethod
    def initial_memory(self, like: Tensor, batch: int) -> Tensor:
        """Return the memory before the first token."""

    @abstractmethod
    def memory_floats(self) -> int:
        """Return how many floats the memory is."""

    @abstractmethod
    def memory_flops(self, seq_len: int) -> float:
        """Return the operations of the memory for a token."""

    @abstractmethod
    def memory_rules(self) -> dict[str, Rule]:
        """Return the rules of the memory's parameters."""

    def _read_beside(self, x: SharedInput, heads: Any, positions: Tensor, state: Cache | None) -> FastOut:
        """Return what the memory reads, and the memory after it."""
        before = (None, None) if state is None else (state.memory, state.seen)
        return self.read_memory(x, heads, positions, *before)

    def _attend(
        self, new: Tokens, keys: Tensor, values: Tensor, key_positions: Tensor | None, log_forget_sums: Any
    ) -> Tensor:
        """Return the layer's output, with what the memory reads."""
        attended = self.read(new, keys, values, key_positions, log_forget_sums)
        y: Tensor = self.readout(self.join(attended, new.more.o), new.shared)
        return y

    def _append(self, state: Cache, new: Tokens, *, in_place: bool = False, first: bool = False) -> Cache:
        """Append tokens to the cache as `Attention` does, with the memory after them."""
        cache = super()._append(state, new, in_place=in_place, first=first)
        return cache._replace(memory=new.more.memory)

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """Return an empty cache and the initial memory."""
        cache = super().init_state(batch, capacity=capacity)
        return cache._replace(memory=self.initial_memory(cache.keys, batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return those of attention and of the memory."""
        return super().state_floats(seq_len).plus(StateSize(recurrent=self.memory_floats()))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of attention and of the memory."""
        return super().recurrence_flops(seq_len) + self.memory_flops(seq_len)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return those of attention and of the memory."""
        return super().parameter_rules() | self.memory_rules()

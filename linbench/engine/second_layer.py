"""A mixer where it is not the first: behind another of its kind, whose tokens it sees and which hands on to
it."""

from typing import Any, NamedTuple

from torch import Tensor

from linbench.models.base import Mixer, Out, StateSize


class States(NamedTuple):
    """Of both layers."""

    first: Any = None
    second: Any = None


class Second(Mixer):
    """y of the second of two layers, which is given what the first hands on. Both read the same x, so that a
    fault shows in the layer that has it."""

    def __init__(self, first: Mixer, second: Mixer) -> None:
        super().__init__(second.settings, second.layer)
        self.first, self.second = first, second

    def forward(self, x: Tensor, state: States | None = None, handed: Any = None) -> Out:
        """As `Mixer.forward`."""
        given = state or States()
        before: Out = self.first(x, given.first, handed)
        return _both(before, self.second(x, given.second, before.handed))

    def init_state(self, batch: int, *, capacity: int) -> States:
        """As `Mixer.init_state`."""
        return States(*(mixer.init_state(batch, capacity=capacity) for mixer in (self.first, self.second)))

    def prefill(self, x: Tensor, *, capacity: int, handed: Any = None) -> Out:
        """As `Mixer.prefill`."""
        before = self.first.prefill(x, capacity=capacity, handed=handed)
        return _both(before, self.second.prefill(x, capacity=capacity, handed=before.handed))

    def decode(self, x: Tensor, state: States, handed: Any = None) -> Out:
        """As `Mixer.decode`."""
        before = self.first.decode(x, state.first, handed)
        return _both(before, self.second.decode(x, state.second, before.handed))

    def state_floats(self, seq_len: int) -> StateSize | None:
        """Of both layers."""
        first, second = (mixer.state_floats(seq_len) for mixer in (self.first, self.second))
        return None if first is None or second is None else first.plus(second)

    def recurrence_flops(self, seq_len: int) -> float | None:
        """Of both layers."""
        first, second = (mixer.recurrence_flops(seq_len) for mixer in (self.first, self.second))
        return None if first is None or second is None else first + second


def _both(first: Out, second: Out) -> Out:
    return Out(second.y, States(first.state, second.state), second.handed)

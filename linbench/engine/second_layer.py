"""A mixer in the second layer, behind another of its kind whose output for later layers it gets."""

from typing import Any, NamedTuple

from torch import Tensor

from linbench.models.base import Mixer, Out, StateSize


class States(NamedTuple):
    """The states of both layers."""

    first: Any = None
    second: Any = None


class SecondLayer(Mixer):
    """The second of two mixers, which gets what the first hands on to later layers.

    Both read the same x, so that a fault shows in the layer that has it. Methods are those of `Mixer`; y is
    the second layer's.
    """

    def __init__(self, first: Mixer, second: Mixer) -> None:
        super().__init__(second.settings, second.layer)
        self.first, self.second = first, second

    def forward(self, x: Tensor, state: States | None = None, cross_layer: Any = None) -> Out:
        """Return y of the second layer, and the states of both."""
        states = state or States()
        first_out: Out = self.first(x, states.first, cross_layer)
        return _join(first_out, self.second(x, states.second, first_out.cross_layer))

    def init_state(self, batch: int, *, capacity: int) -> States:
        """Return the initial states of both layers."""
        return States(*(mixer.init_state(batch, capacity=capacity) for mixer in (self.first, self.second)))

    def prefill(self, x: Tensor, *, capacity: int, cross_layer: Any = None) -> Out:
        """Return y of the second layer for a prompt, and the states of both to decode from."""
        first_out = self.first.prefill(x, capacity=capacity, cross_layer=cross_layer)
        return _join(first_out, self.second.prefill(x, capacity=capacity, cross_layer=first_out.cross_layer))

    def decode(self, x: Tensor, state: States, cross_layer: Any = None) -> Out:
        """Return y of the second layer for one more token, and the new states."""
        first_out = self.first.decode(x, state.first, cross_layer)
        return _join(first_out, self.second.decode(x, state.second, first_out.cross_layer))

    def state_floats(self, seq_len: int) -> StateSize | None:
        """Return the sum of both state sizes; None if a layer declares none."""
        first, second = (mixer.state_floats(seq_len) for mixer in (self.first, self.second))
        return None if first is None or second is None else first.plus(second)

    def recurrence_flops(self, seq_len: int) -> float | None:
        """Return the sum of both layers' FLOPs; None if a layer declares none."""
        first, second = (mixer.recurrence_flops(seq_len) for mixer in (self.first, self.second))
        return None if first is None or second is None else first + second


def _join(first: Out, second: Out) -> Out:
    return Out(second.y, States(first.state, second.state), second.cross_layer)

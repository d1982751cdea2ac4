"""Base class of variants whose memory is a small network per head, trained while the sequence is read."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from linbench.common.settings import Settings
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.rotary import angles, rotate
from linbench.models.base import Mixer, Out, Rule, StateSize
from linbench.models.blocks.heads import FAMILIES, HeadProjection, Readout, share_input
from linbench.models.blocks.positions import positions_after, require_even
from linbench.models.blocks.trained_memory import FastWeightSettings, TrainedMemory


class FastWeightState(NamedTuple):
    """State of a layer whose memory is a network.

    memory: of each head, weights, and what its step carries beside them [B, H, N], in at least float32. seen:
    number of tokens so far [B]. conv: what the short convolution remembers, None without one.
    """

    memory: Tensor
    seen: Tensor
    conv: Tensor | None


class FastWeightMixer(TrainedMemory, Mixer):
    """A mixer with such a memory and nothing else. A variant names network and step, and makes the gates."""

    kernel_families: ClassVar[tuple[str, ...]] = ("fast_weight", "rotary", *FAMILIES)
    generation = "test-time training"
    Settings: ClassVar[type[Settings]] = FastWeightSettings

    def __init__(self, settings: Any, layer: Any) -> None:
        super().__init__(settings, layer)
        self.project = HeadProjection(settings, layer)
        self.readout = Readout(settings, layer)
        self.start_memory()
        if self.turns:
            require_even(self.project.key_dim)

    @property
    def turns(self) -> bool:
        """True if q and k are rotated by their place in the mini-batch."""
        return False

    def forward(self, x: Tensor, state: FastWeightState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        seen = None if state is None else state.seen
        if self.turns:
            q, k = self._rotate(q, k, seen)
        o, memory = self.learn(given, (q, k, v), state and state.memory, seen)
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
        seen = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        return FastWeightState(self.initial_memory(weight, batch), seen, self.project.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return those of the memory and the convolution's."""
        return StateSize(recurrent=self.memory_floats(), convolution=self.project.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, token by token, and of the feature map."""
        return self.memory_flops(seq_len) + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return those of the memory."""
        return self.memory_rules()

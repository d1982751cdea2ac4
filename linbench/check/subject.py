"""What is put through the laws: a mixer that can be built again and again, with the same weights."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from linbench.cell import Cell
from linbench.check.second import Second
from linbench.common.keys import stable_key
from linbench.models.base import LayerInfo, Mixer

ROWS = 2
"""Of a batch."""

BARE = "zoology-64-4"
"""A preset of mqar that sets nothing of a model, so that a mixer is checked as it is published."""

LARGEST = 100_000_000
"""Parameters and floats of state of a layer: in float64, with gradients and several states at once, more would fill a computer."""

PLACES = {0: "", 1: ", in the second layer"}
"""Where a mixer is looked at, by the layer's index, and what is said of it there."""


class UndeclaredError(Exception):
    """A law asks for something that the mixer does not say of itself."""


class Subject:
    """The first layer of a cell's model, built as the first or the second of two."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.layer = cell.model.layers[0]
        self.width = cell.model.backbone.d_model
        self.cls: type[Mixer] = self.layer.entry.cls

    def build(self, dtype: torch.dtype = torch.float64, *, seed: int = 0, index: int = 0) -> Mixer:
        """The mixer of that layer as it starts, but that weights of zero are drawn: what ends in them would be silent, and hide what lies behind."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stable_key("check", seed))
            mixer = self.cls(self.layer.settings, LayerInfo(index, 2, self.width))
            for parameter in mixer.parameters():
                if not parameter.detach().any():
                    parameter.data.normal_(std=parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1)
        return mixer.to(dtype).eval()

    def placed(self, index: int, dtype: torch.dtype = torch.float64) -> Mixer:
        """The mixer of that layer, with what comes before it."""
        # with the same weights in both the second would be handed what it has itself
        return self.build(dtype) if index == 0 else Second(self.build(dtype), self.build(dtype, seed=index, index=index)).eval()

    def called(self, x: Tensor, index: int, *, training: bool) -> Tensor:
        """y of that layer's mixer, as in training or not, with the same random numbers every time; built anew, since one may keep running statistics."""
        mixer = self.placed(index, x.dtype).train(training)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stable_key("check call"))
            y: Tensor = mixer(x).y
        return y

    def size(self) -> int | None:
        """Parameters of the first layer and floats of its state, counted without memory; None where it cannot be built so."""
        try:
            mixer = next(mixer for mixer in self.cell.model.sketch(self.cell.task).mixers if isinstance(mixer, Mixer))
            state = mixer.state_floats(1)
        except Exception:  # a constructor that cannot work without memory is not thereby wrong
            return None
        return sum(p.numel() for p in mixer.parameters()) + (state.total if state else 0)

    def tokens(self, length: int, dtype: torch.dtype = torch.float64, *, rows: int = ROWS, seed: int = 0) -> Tensor:
        """[rows, length, D] from N(0, 1), which norms before a mixer make of what comes in."""
        generator = torch.Generator().manual_seed(stable_key("check tokens", seed, length))
        return torch.randn(rows, length, self.width, dtype=torch.float64, generator=generator).to(dtype)

    def fresh(self, mixer: Mixer, rows: int, capacity: int) -> Any:
        """The state before the first token. Raises UndeclaredError: the mixer has none."""
        if self.cls.opaque:
            raise UndeclaredError("it declares no state; a Mixer with init_state would")
        return mixer.init_state(rows, capacity=capacity)

    def streamed(self, mixer: Mixer, x: Tensor, points: Sequence[int], *, decoding: bool = False) -> tuple[Tensor, Any]:
        """x in the parts between `points`, one after the other: y and the last state. decoding: by `prefill`, and from there on `decode`."""
        state, parts = self.fresh(mixer, len(x), x.shape[1]), []
        carry_on = mixer.decode if decoding else mixer
        for start, end in itertools.pairwise((0, *points, x.shape[1])):
            part = x[:, start:end]
            out = mixer.prefill(part, capacity=x.shape[1]) if decoding and start == 0 else carry_on(part, state)
            parts.append(out.y)
            state = out.state
        return torch.cat(parts, dim=1), state


def tensors(state: Any) -> Iterator[Tensor]:
    """All of a tree of them."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        yield from tensors(list(state.values()))
    elif isinstance(state, tuple | list):
        for part in state:
            yield from tensors(part)


def difference(given: Tensor, expected: Tensor) -> float:
    """The largest over the largest expected value; infinite where anything is not finite."""
    given, expected = given.detach().double(), expected.detach().double()
    if not (given.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    return float((given - expected).abs().max() / expected.abs().max().clamp(min=1e-30))

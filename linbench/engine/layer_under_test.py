"""What is put through the laws: a mixer that can be built again and again, with the same weights."""

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linbench.common.hashing import stable_key
from linbench.engine.layer_precision import Witness, limit
from linbench.engine.second_layer import Second
from linbench.experiments.cell import Cell
from linbench.experiments.model_spec import LayerSpec
from linbench.models.base import LayerInfo, Mixer

ROWS = 2
"""Of a batch."""

BARE = "zoology-64-4"
"""A preset of mqar that sets nothing of a model, so that a mixer is checked as it is published."""

LARGEST = 100_000_000
"""Parameters and floats of state of a layer: in float64, with gradients and several states at once, more
would fill a computer."""

PLACES = {0: "", 1: ", in the second layer"}
"""Where a mixer is looked at, by the layer's index, and what is said of it there."""


SHORT = 7
"""Tokens by which it is found out what a layer computes in."""


class UndeclaredError(Exception):
    """A law asks for something that the mixer does not say of itself."""


class Subject:
    """A layer of a cell's model, the first if none is named, built as the first or the second of two on a
    `device`."""

    def __init__(self, cell: Cell, layer: LayerSpec | None = None, device: str = "cpu") -> None:
        self.cell, self.device = cell, device
        self.layer = layer or cell.model.layers[0]
        self.width = cell.model.backbone.d_model
        self.cls: type[Mixer] = self.layer.entry.cls

    @cached_property
    def dtype(self) -> torch.dtype:
        """The floating-point type that laws are judged in: float64, or float32 where the layer does not take
        and return that."""
        try:
            with torch.no_grad():
                y = self.build(torch.float64)(self.tokens(SHORT, torch.float64)).y
        except Exception:  # it may be bound to float32; what it raises there, too, is told by the laws
            return torch.float32
        return torch.float64 if y.dtype == torch.float64 else torch.float32

    @cached_property
    def precision(self) -> torch.dtype:
        """The type with the fewest digits that lies between its input or weights and its output, called in
        `dtype`."""
        mixer, x = self.build(), self.tokens(SHORT)
        watched = Witness([x, *mixer.parameters()])
        try:
            with torch.no_grad(), watched:
                mixer(x)
        except Exception:  # what raises is told by the laws, and some code cannot be watched
            return self.dtype
        return watched.coarsest

    def limit(self, double: float, single: float = 1e-4) -> float:
        """Return the difference allowed between equal things at the precision that it computes in: `double`
        in float64, `single` in float32."""
        return limit(self.precision, double, single)

    def build(self, dtype: torch.dtype | None = None, *, seed: int = 0, index: int = 0) -> Mixer:
        """Return the mixer as it starts, in `dtype` or else its own, but that weights of zero are drawn: what
        ends in them would be silent, and hide what lies behind."""
        with seeded(self.device, "check", seed):
            mixer = self.cls(self.layer.settings, LayerInfo(index, 2, self.width))
            for parameter in mixer.parameters():
                if parameter.requires_grad and not parameter.detach().any():
                    parameter.data.normal_(std=parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1)
        return mixer.to(self.device, dtype or self.dtype).eval()

    def placed(self, index: int, dtype: torch.dtype | None = None) -> Mixer:
        """Return the mixer of that layer, with what comes before it."""
        # with the same weights in both the second would be handed what it has itself
        return (
            self.build(dtype)
            if index == 0
            else Second(self.build(dtype), self.build(dtype, seed=index, index=index)).eval()
        )

    def called(self, x: Tensor, index: int, *, training: bool) -> Tensor:
        """Return y of that layer's mixer, as in training or not, with the same random numbers every time;
        built anew, since one may keep running statistics."""
        mixer = self.placed(index, x.dtype).train(training)
        with seeded(self.device, "check call"):
            y: Tensor = mixer(x).y
        return y

    def size(self) -> int | None:
        """Parameters of the first layer and floats of its state, counted without memory; None where it cannot
        be built so."""
        try:
            mixer = next(
                mixer for mixer in self.cell.model.sketch(self.cell.task).mixers if isinstance(mixer, Mixer)
            )
            state = mixer.state_floats(1)
        except Exception:  # a constructor that cannot work without memory is not thereby wrong
            return None
        return sum(p.numel() for p in mixer.parameters()) + (state.total if state else 0)

    def tokens(
        self, length: int, dtype: torch.dtype | None = None, *, rows: int = ROWS, seed: int = 0
    ) -> Tensor:
        """Return [rows, length, D] from N(0, 1), which norms before a mixer make of what comes in."""
        generator = torch.Generator().manual_seed(stable_key("check tokens", seed, length))
        return torch.randn(rows, length, self.width, dtype=torch.float64, generator=generator).to(
            self.device, dtype or self.dtype
        )

    def fresh(self, mixer: Mixer, rows: int, capacity: int) -> Any:
        """The state before the first token. Raises UndeclaredError: the mixer has none."""
        if self.cls.opaque:
            raise UndeclaredError("it declares no state; a Mixer with init_state would")
        return mixer.init_state(rows, capacity=capacity)

    def streamed(
        self, mixer: Mixer, x: Tensor, points: Sequence[int], *, decoding: bool = False
    ) -> tuple[Tensor, Any]:
        """x in the parts between `points`, one after the other: y and the last state. decoding: by `prefill`,
        and from there on `decode`."""
        state, parts = self.fresh(mixer, len(x), x.shape[1]), []
        carry_on = mixer.decode if decoding else mixer
        for start, end in itertools.pairwise((0, *points, x.shape[1])):
            part = x[:, start:end]
            out = (
                mixer.prefill(part, capacity=x.shape[1]) if decoding and start == 0 else carry_on(part, state)
            )
            parts.append(out.y)
            state = out.state
        return torch.cat(parts, dim=1), state


@contextmanager
def seeded(device: str, *key: object) -> Iterator[None]:
    """Let torch, there and on the CPU, numpy and Python draw the same random numbers whenever the key is the
    same; after it they go on from where they were."""
    number, gpus = stable_key(*key), [device] if device != "cpu" else []
    before = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=gpus):
            torch.default_generator.manual_seed(number)
            for gpu in gpus:
                with torch.cuda.device(gpu):
                    torch.cuda.manual_seed(number)
            random.seed(number)
            np.random.seed(number % 2**32)
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def tensors(state: Any) -> Iterator[Tensor]:
    """All of a tree of them."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        yield from tensors(list(state.values()))
    elif isinstance(state, tuple | list):
        for part in state:
            yield from tensors(part)


def difference(given: Tensor, expected: Tensor, beside: Tensor | None = None) -> float:
    """Return the largest difference over the largest expected value, or that of what it stands `beside`, as
    what rounds over all places alike has noise where nothing else is; infinite where anything is not
    finite."""
    given, expected = given.detach().double(), expected.detach().double()
    if not (given.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    largest = (expected if beside is None else beside.detach().double()).abs().max()
    return float((given - expected).abs().max() / largest.clamp(min=1e-30))

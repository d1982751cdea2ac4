"""A layer under test: a mixer that can be built again and again with the same weights."""

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from linbench.common.hashing import stable_key
from linbench.engine.layer_precision import Witness, limit
from linbench.engine.second_layer import SecondLayer
from linbench.experiments.cell import Cell
from linbench.experiments.model_spec import LayerSpec
from linbench.models.base import LayerInfo, Mixer

ROWS = 2
"""Sequences of a batch."""

NEUTRAL_PRESET = "zoology-64-4"
"""A preset of mqar without settings of a model, so that a mixer is checked as published."""

MOST_FLOATS = 100_000_000
"""Largest number of parameters and floats of state of a layer that is checked.

In float64, with gradients and several states at once, more would fill a computer's memory.
"""

LAYER_POSITIONS = {0: "", 1: ", in the second layer"}
"""Layers in which a mixer is tested, by index, with the words for each in messages."""

SHORT = 7
"""Tokens of the sequence by which a layer's dtype is found."""


class UndeclaredError(Exception):
    """The mixer lacks a declaration that a law needs."""


class LayerUnderTest:
    """A layer of a cell's model, the first if none is named.

    It is built on a `device`, as the first or the second of two layers.
    """

    def __init__(self, cell: Cell, layer: LayerSpec | None = None, device: str = "cpu") -> None:
        self.cell, self.device = cell, device
        self.layer = layer or cell.model.layers[0]
        self.width = cell.model.backbone.d_model
        self.cls: type[Mixer] = self.layer.entry.cls

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of the tests: float64, or float32 if the layer does not take and return float64."""
        try:
            with torch.no_grad():
                y = self.build(torch.float64)(self.tokens(SHORT, torch.float64)).y
        except Exception:  # it may be bound to float32; if it raises in that, too, the laws tell
            return torch.float32
        return torch.float64 if y.dtype == torch.float64 else torch.float32

    @cached_property
    def precision(self) -> torch.dtype:
        """The dtype with the fewest digits between input or weights and output, in a call in `dtype`."""
        mixer, x = self.build(), self.tokens(SHORT)
        watched = Witness([x, *mixer.parameters()])
        try:
            with torch.no_grad(), watched:
                mixer(x)
        except Exception:  # if it raises without a witness, too, the laws tell; some code cannot be watched
            return self.dtype
        return watched.coarsest

    def limit(self, double: float, single: float = 1e-4) -> float:
        """Return the difference up to which values count as equal in the layer's precision.

        Args:
            double: the limit for float64.
            single: the limit for float32.
        """
        return limit(self.precision, double, single)

    def build(self, dtype: torch.dtype | None = None, *, seed: int = 0, index: int = 0) -> Mixer:
        """Return the mixer with its initial weights, in `dtype` or else in the one laws are tested in.

        Weights of zero are drawn at random: they would hide whatever ends in them.
        """
        with seeded(self.device, "check", seed):
            sites = self.cell.model.backbone.canon
            mixer = self.cls(self.layer.settings, LayerInfo(index, 2, self.width, sites))
            for parameter in mixer.parameters():
                if parameter.requires_grad and not parameter.detach().any():
                    std = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1
                    parameter.data.normal_(std=std)
        return mixer.to(self.device, dtype or self.dtype).eval()

    def at_layer(self, index: int, dtype: torch.dtype | None = None) -> Mixer:
        """Return the mixer of the layer with this index, with the layer before it."""
        first = self.build(dtype)
        if index == 0:
            return first
        # another seed: with equal weights the first would hand on what the second computes itself
        return SecondLayer(first, self.build(dtype, seed=index, index=index)).eval()

    def call(self, x: Tensor, index: int, *, training: bool) -> Tensor:
        """Return y of the mixer of the layer with this index.

        It is built anew for each call, since it may keep running statistics, and draws the same random
        numbers each time.

        Args:
            x: [B, T, D].
            index: 0 for the first layer, 1 for the second.
            training: whether it is called as in training.
        """
        mixer = self.at_layer(index, x.dtype).train(training)
        with seeded(self.device, "check call"):
            y: Tensor = mixer(x).y
        return y

    def size(self) -> int | None:
        """Return the number of parameters and floats of state of the layer.

        They are counted without memory; None if the layer cannot be built so.
        """
        try:
            model = self.cell.model.sketch(self.cell.task)
            place = [layer is self.layer for layer in self.cell.model.layers].index(True)
            mixer = cast("Mixer", model.mixers[place])
            state = mixer.state_floats(1)
        except Exception:  # a constructor that needs memory is not wrong
            return None
        return sum(p.numel() for p in mixer.parameters()) + (state.total if state else 0)

    def tokens(
        self, length: int, dtype: torch.dtype | None = None, *, rows: int = ROWS, seed: int = 0
    ) -> Tensor:
        """Return inputs [rows, length, D] from N(0, 1), like those of the norm before a mixer."""
        generator = torch.Generator().manual_seed(stable_key("check tokens", seed, length))
        x = torch.randn(rows, length, self.width, dtype=torch.float64, generator=generator)
        return x.to(self.device, dtype or self.dtype)

    def initial_state(self, mixer: Mixer, rows: int, capacity: int) -> Any:
        """Return the state before the first token. Raises UndeclaredError: the mixer declares none."""
        if not self.cls.streams:
            raise UndeclaredError("it declares no state; init_state would (docs/your-layer.md)")
        return mixer.init_state(rows, capacity=capacity)

    def stream(
        self, mixer: Mixer, x: Tensor, points: Sequence[int], *, decoding: bool = False
    ) -> tuple[Tensor, Any]:
        """Call a mixer with one part of x after another, and return y of all and the last state.

        Args:
            mixer: the mixer.
            x: [B, T, D].
            points: positions at which x is divided.
            decoding: call `prefill` for the first part and `decode` for the others.
        """
        state, parts = self.initial_state(mixer, len(x), x.shape[1]), []
        carry_on = mixer.decode if decoding else mixer
        for start, end in itertools.pairwise((0, *points, x.shape[1])):
            part = x[:, start:end]
            if decoding and start == 0:
                out = mixer.prefill(part, capacity=x.shape[1])
            else:
                out = carry_on(part, state)
            parts.append(out.y)
            state = out.state
        return torch.cat(parts, dim=1), state


def different_layers(cell: Cell) -> dict[str, LayerUnderTest]:
    """Return each different layer of a cell's model once, by its model's name.

    Of one model with several settings each has its place in the name, from 1: `attention, layer 3`.
    """
    layers = cell.model.layers
    identities = [layer.identity() for layer in layers]
    firsts = [index for index, one in enumerate(identities) if one not in identities[:index]]
    names = [layers[index].entry.name for index in firsts]
    return {
        name if names.count(name) == 1 else f"{name}, layer {index + 1}": LayerUnderTest(cell, layers[index])
        for name, index in zip(names, firsts, strict=True)
    }


@contextmanager
def seeded(device: str, *key: object) -> Iterator[None]:
    """Seed the generators of torch, numpy and Python by a key, and restore their states afterwards.

    Args:
        device: torch's generator there is seeded, as well as the CPU's.
        key: equal keys give equal random numbers.
    """
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


def tensor_leaves(state: Any) -> Iterator[Tensor]:
    """Yield all tensors of a tree of dicts, lists and tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        yield from tensor_leaves(list(state.values()))
    elif isinstance(state, tuple | list):
        for part in state:
            yield from tensor_leaves(part)


def difference(values: Tensor, expected: Tensor, scale: Tensor | None = None) -> float:
    """Return the largest difference relative to the largest expected value; infinite if one is not finite.

    Args:
        values: the values to be tested.
        expected: the values that they should equal.
        scale: values whose largest takes the place of the largest expected one. Rounding makes noise of one
            size over a whole output, also where the expected part is nearly zero.
    """
    values, expected = values.detach().double(), expected.detach().double()
    if not (values.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    largest = (expected if scale is None else scale.detach().double()).abs().max()
    return float((values - expected).abs().max() / largest.clamp(min=1e-30))

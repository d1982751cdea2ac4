"""Cases of layers, and the calls that `bench length`, `prefill`, `decode`, `memory` and `forms` time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from linbench.bench.case import BenchmarkCase, PeerVersion
from linbench.bench.layer_side import Side, random_tokens
from linbench.common.settings import Settings
from linbench.engine.layer_under_test import LayerUnderTest, UndeclaredError
from linbench.experiments.cell import Cell
from linbench.experiments.precision import DTYPES, Precision
from linbench.kernels.operators import prefer_backend
from linbench.models.base import Mixer
from linbench.results.store import SPEED

VERSION = 1
"""Version of the measurement of layers, part of the identity of every result.

Raise it with every change that alters what is measured.
"""

Question = Literal["train", "prefill", "decode", "memory"]
"""A question about a layer.

train: forward and backward of a batch. prefill: prompts, from an empty state to one that is kept. decode: one
more token for every sequence of a batch, after a context. memory: bytes.
"""

PREFILL_TOKENS = 4096
"""Tokens of context that are taken in at a time before decoding, of one sequence.

Buffers for all of a batch and a long context may not fit in memory.
"""

SPARE_PLACES = 7
"""Places of a cache beyond the context.

With the token itself that makes a multiple of eight, which fused kernels want.
"""


@dataclass(frozen=True)
class LayerCase(BenchmarkCase):
    """One question to one layer, the first of the cell's model, at one shape.

    Args:
        backend: form of its kernels; "auto" lets them choose.
        repeats: calls behind a median.
    """

    kind: ClassVar[str] = SPEED
    timeout: ClassVar[float] = 180.0

    question: Question
    cell: Cell
    batch: int
    length: int
    precision: Precision
    backend: str = "auto"
    peer: PeerVersion | None = None
    repeats: int = 20

    @property
    def device(self) -> str:
        """Device of the cell."""
        return self.cell.device

    @property
    def label(self) -> str:
        """Model as the user wrote it."""
        return self.cell.model.label

    @property
    def mixer(self) -> str:
        """Registered name of the layer."""
        return self.cell.model.layers[0].entry.name

    @property
    def settings(self) -> Settings:
        """Settings of the layer."""
        return self.cell.model.layers[0].settings

    @property
    def width(self) -> int:
        """Width D of the layer's input and output."""
        return self.cell.model.backbone.d_model

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The layer, the shape, and the question."""
        model = self.cell.model
        return {
            "version": VERSION,
            "question": self.question,
            "layer": {"form": model.form, "d_model": model.backbone.d_model, **model.layers[0].identity()},
            "shape": {"batch": self.batch, "length": self.length},
            "precision": self.precision,
            "backend": self.backend,
        }

    @property
    def compile_key(self) -> str:
        """Key of what the case launches: memory is measured of a training step, and shares its kernels."""
        return replace(self, question="train").id if self.question == "memory" else self.id

    def __str__(self) -> str:
        form = "" if self.backend == "auto" else f" {self.backend}"
        return f"{self.question} {self.label}{form} B{self.batch}xT{self.length} {self.precision}"


MakeCall = Callable[[LayerCase, Side], Callable[[], Any]]
"""A function from a case and a side to the call that is timed."""


def build_layer(case: LayerCase) -> Side:
    """Build linbench's layer of a case, with its initial weights; those that start at zero are random.

    Raises whatever its constructor raises.
    """
    subject = LayerUnderTest(case.cell)
    mixer = subject.build(torch.float32).to(case.device, DTYPES[case.precision])

    def prefill(x: Tensor) -> Any:
        return mixer.prefill(x, capacity=x.shape[1]) if subject.cls.streams else mixer(x)

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        state = prefilled_state(subject, mixer, batch, context)
        return lambda x: mixer.decode(x, state)

    return Side(mixer, lambda x: mixer(x).y, prefill, after)


@torch.no_grad()
def prefilled_state(subject: LayerUnderTest, mixer: Mixer, batch: int, context: int) -> Any:
    """Return the state of `batch` equal sequences of `context` tokens, with room for a few more.

    Raises UndeclaredError: the layer has no state.
    """
    state = subject.initial_state(mixer, 1, context + SPARE_PLACES)
    weight = next(mixer.parameters())
    for start in range(0, context, PREFILL_TOKENS):
        count = min(PREFILL_TOKENS, context - start)
        state = mixer.decode(random_tokens(1, count, subject.width, like=weight), state).state

    def repeat(part: Any) -> Any:
        return part.expand(batch, *part.shape[1:]).contiguous() if isinstance(part, Tensor) else part

    return tree_map(repeat, state)


def layer_input(case: LayerCase) -> Tensor:
    """Draw the input of a case: [B, T, D], or [B, 1, D] if it decodes."""
    length = 1 if case.question == "decode" else case.length
    like = torch.empty(0, device=case.device, dtype=DTYPES[case.precision])
    return random_tokens(case.batch, length, case.width, like=like)


def training_call(case: LayerCase, side: Side) -> Callable[[], Any]:
    """Return a call of forward and backward, to the gradients of the input and of every parameter."""
    side.module.train()
    x = layer_input(case).requires_grad_()
    leaves = [x, *(parameter for parameter in side.module.parameters() if parameter.requires_grad)]
    cotangent = torch.randn_like(x)
    return lambda: torch.autograd.grad(side.forward(x), leaves, cotangent, allow_unused=True)


@contextmanager
def kernel_context(case: LayerCase) -> Iterator[None]:
    """Compute with the case's form of kernels, and launch Triton's on its device.

    Raises UndeclaredError on leaving: no kernel of the layer has this form.
    """
    with torch.cuda.device(case.device if case.device != "cpu" else -1):
        if case.backend == "auto":
            yield
            return
        with prefer_backend(case.backend) as taken:
            yield
        if not taken:
            raise UndeclaredError(f"no kernel of this layer has the form {case.backend}")


def first_call(case: LayerCase, make: MakeCall, side: Side) -> tuple[Callable[[], Any], float]:
    """Make a side's call and run it once.

    Returns:
        the call, and the seconds until the device had done it.
    """
    call = make(case, side)
    began = time.perf_counter()
    call()
    if case.device != "cpu":
        torch.cuda.synchronize(case.device)
    return call, time.perf_counter() - began

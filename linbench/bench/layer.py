"""What `bench length`, `prefill`, `decode`, `memory` and `forms` share: which layer, at which shape, built
how, timed how, and what is known of it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from linbench.bench import peers
from linbench.bench.case import Asked, Peer
from linbench.bench.layer_side import Side, random_tokens
from linbench.bench.machine import keep_at_work
from linbench.bench.timing import as_called, replayed_where_possible
from linbench.common.settings import Settings
from linbench.engine.layer_under_test import Subject, UndeclaredError
from linbench.experiments.cell import Cell
from linbench.experiments.precision import DTYPES, Precision
from linbench.kernels.operators import preferring
from linbench.models.base import Mixer
from linbench.models.costs import work_bytes, work_flops
from linbench.results.speed_labels import OURS
from linbench.results.store import SPEED

VERSION = 1
"""Raised whenever a change to how layers are measured changes what is found; part of the identity of every
result."""

Question = Literal["train", "prefill", "decode", "memory"]
"""Forward and backward of a batch; prompts from an empty state, which is kept; one more token for each of a
batch, after so many; bytes."""

QUESTIONS: tuple[Question, ...] = get_args(Question)

FILLED_AT_ONCE = 4096
"""Tokens of a context that is filled before decoding: of one sequence, and a part at a time, since the caches
of all of a batch may be large."""

ROOM = 7
"""Places of a cache beyond the context: with the token itself there is a multiple of eight, as fused kernels
want it."""

LONG_SECONDS = 1.0
"""A call that takes longer is not captured: it is made of more launches than a graph should hold, or of so
few that it makes no difference."""


@dataclass(frozen=True)
class Case(Asked):
    """One question at one shape of one layer, the first of the cell's model. backend: of its kernels, "auto"
    where they choose."""

    kind: ClassVar[str] = SPEED
    seconds: ClassVar[float] = 180.0

    question: Question
    cell: Cell
    batch: int
    length: int
    precision: Precision
    backend: str = "auto"
    peer: Peer | None = None
    repeats: int = 20

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.cell.device

    @property
    def label(self) -> str:
        """The model as the user wrote it."""
        return self.cell.model.label

    @property
    def mixer(self) -> str:
        """The layer's name."""
        return self.cell.model.layers[0].entry.name

    @property
    def settings(self) -> Settings:
        """The layer's own."""
        return self.cell.model.layers[0].settings

    @property
    def width(self) -> int:
        """D."""
        return self.cell.model.backbone.d_model

    @property
    def tokens(self) -> int:
        """That one call takes in."""
        return self.batch * (1 if self.question == "decode" else self.length)

    @property
    def particulars(self) -> dict[str, Any]:
        """The layer, the shape, and how it is asked."""
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
    def launches(self) -> str:
        """Memory is asked of a step of training."""
        return replace(self, question="train").id if self.question == "memory" else self.id

    def __str__(self) -> str:
        form = "" if self.backend == "auto" else f" {self.backend}"
        return f"{self.question} {self.label}{form} B{self.batch}xT{self.length} {self.precision}"


def ours(case: Case) -> Side:
    """The case's layer on its device, with the weights it starts with, but that those of zero are drawn.
    Raises whatever its constructor raises."""
    subject = Subject(case.cell)
    mixer = subject.build(torch.float32).to(case.device, DTYPES[case.precision])

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        state = filled(subject, mixer, batch, context)
        return lambda x: mixer.decode(x, state)

    return Side(
        mixer,
        lambda x: mixer(x).y,
        lambda x: mixer(x) if subject.cls.opaque else mixer.prefill(x, capacity=x.shape[1]),
        after,
    )


@torch.no_grad()
def filled(subject: Subject, mixer: Mixer, batch: int, context: int) -> Any:
    """The state of `batch` equal sequences after so many tokens, with room for a few more. Raises
    UndeclaredError: the layer has none."""
    state = subject.fresh(mixer, 1, context + ROOM)
    weight = next(mixer.parameters())
    for start in range(0, context, FILLED_AT_ONCE):
        state = mixer.decode(
            random_tokens(1, min(FILLED_AT_ONCE, context - start), subject.width, like=weight), state
        ).state
    return tree_map(
        lambda x: x.expand(batch, *x.shape[1:]).contiguous() if isinstance(x, Tensor) else x, state
    )


def inputs(case: Case) -> Tensor:
    """[B, T, D], of decoding [B, 1, D]."""
    length = 1 if case.question == "decode" else case.length
    return random_tokens(
        case.batch, length, case.width, like=torch.empty(0, device=case.device, dtype=DTYPES[case.precision])
    )


Make = Callable[[Case, Side], Callable[[], Any]]
"""What a question asks of a side, as a call that is timed."""


def training(case: Case, side: Side) -> Callable[[], Any]:
    """A call that goes forward and backward, to the gradients of the input and of every parameter."""
    side.module.train()
    x = inputs(case)
    leaves = [
        x.requires_grad_(),
        *(parameter for parameter in side.module.parameters() if parameter.requires_grad),
    ]
    cotangent = torch.randn_like(x)
    return lambda: torch.autograd.grad(side.forward(x), leaves, cotangent, allow_unused=True)


@contextmanager
def computing(case: Case) -> Iterator[list[str] | None]:
    """With the case's kernels, on its device, where Triton launches. Raises UndeclaredError on leaving: no
    kernel of the layer has the form asked for."""
    with torch.cuda.device(case.device if case.device != "cpu" else -1):
        if case.backend == "auto":
            yield None
            return
        with preferring(case.backend) as taken:
            yield taken
        if not taken:
            raise UndeclaredError(f"no kernel of this layer has the form {case.backend}")


def once(case: Case, make: Make, side: Side) -> tuple[Callable[[], Any], float]:
    """The call, and how long its first takes until the device is done."""
    call = make(case, side)
    began = time.perf_counter()
    call()
    if case.device != "cpu":
        torch.cuda.synchronize(case.device)
    return call, time.perf_counter() - began


def compiled(case: Case, make: Make) -> float:
    """Seconds of the first call of our side; the peer's is called as well, so that its kernels are there when
    they are timed."""
    with computing(case):
        _, seconds = once(case, make, ours(case))
        if case.peer is not None:
            with suppress(Exception):  # its fault is told when it is timed
                once(case, make, peers.layer(case.peer[0], case, compiling=True))
    return seconds


def timed(case: Case, make: Make) -> dict[str, Any]:
    """The seconds of our side's call and the peer's, in turn; a fault of the peer's is a word on its side.
    Also of our first call, and what a call costs at the least. On a GPU work is still under way when it
    returns."""
    side = ours(case)
    calls, refused = dict[str, Callable[[], Any]](), dict[str, dict[str, str]]()
    calls[OURS], first = once(case, make, side)
    if case.peer is not None:
        name = case.peer[0]
        found, reason = peers.made_by(
            name, case.device, "layers", lambda: once(case, make, peers.layer(name, case))
        )
        if found is None:
            refused[name] = reason
        else:
            calls[name], _ = found
    sides = _seconds(case, calls)
    if case.device != "cpu":
        keep_at_work(calls[OURS], sides[OURS]["as_called"]["median"])
    return {"sides": sides | refused, "first_call": first, "cost": cost(case, side)}


def _seconds(case: Case, calls: Mapping[str, Callable[[], Any]]) -> dict[str, dict[str, Any]]:
    """For each call its seconds with their spread: as called, and on a GPU replayed as well, or the reason
    why not."""
    cuda = case.device != "cpu"
    found: dict[str, dict[str, Any]] = {
        name: {"as_called": seconds._asdict()}
        for name, seconds in as_called(calls, repeats=case.repeats, cuda=cuda).items()
    }
    if cuda:
        short = {
            name: call for name, call in calls.items() if found[name]["as_called"]["median"] <= LONG_SECONDS
        }
        replays, reasons = replayed_where_possible(short, repeats=case.repeats) if short else ({}, {})
        for name in calls:
            note = reasons.get(name, f"not captured: a call takes more than {LONG_SECONDS:g} s")
            found[name] |= {"replayed": replays[name]._asdict()} if name in replays else {"note": note}
    return found


def cost(case: Case, side: Side) -> dict[str, float | None]:
    """Floating-point operations and bytes that our side's call takes at the least; None where the layer does
    not declare what they follow from."""
    assert case.question != "memory"
    at: dict[str, int] = {"batch": case.batch, "length": case.length}
    mixer: Any = side.module
    return {
        "flops": work_flops(mixer, case.question, **at),
        "bytes": work_bytes(mixer, case.question, **at, itemsize=DTYPES[case.precision].itemsize),
    }

"""`bench memory`: what training takes at most, and what a sequence leaves behind at inference."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from linbench.bench.layer import Case, once, ours, training
from linbench.bench.presets import Preset
from linbench.bench.timing import peak_bytes
from linbench.engine.layer_under_test import Subject, tensors
from linbench.models.base import StateSize
from linbench.results.speed_labels import OURS

MISCOUNTED = "state_size"
"""The mark of a layer whose state does not hold as many floats as it declares."""


def cases(base: Sequence[Case], preset: Preset) -> list[Case]:
    """Of each at every length."""
    return [
        replace(case, question="memory", length=length, batch=preset.batch(length))
        for case in base
        for length in preset.lengths
    ]


def measure(case: Case) -> dict[str, Any]:
    """Bytes that training of a batch takes at most beyond weights and input, and those of the state that one
    sequence leaves behind, by its tensors; the floats among them beside those that the layer declares."""
    side = ours(case)
    step, first = once(case, training, side)
    peak = peak_bytes(step) if case.device != "cpu" else held_at_most(step)
    found: dict[str, Any] = {"sides": {OURS: {"peak_bytes": peak}}, "first_call": first}
    subject, mixer = Subject(case.cell), side.module
    if not subject.cls.opaque:
        state = list(tensors(mixer.init_state(1, capacity=case.length)))  # type: ignore[operator]
        floats = sum(part.numel() for part in state if part.is_floating_point())
        told: StateSize | None = mixer.state_floats(case.length)  # type: ignore[operator]
        declared = None if told is None else {**told._asdict(), "total": told.total}
        found["state"] = {"bytes": sum(part.nbytes for part in state), "floats": floats, "declared": declared}
        if told is not None and told.total != floats:
            found["marks"] = [MISCOUNTED]
    return found


def held_at_most(call: Callable[[], Any]) -> int:
    """Bytes of the tensors that a call holds at most at once, beyond those that were there before: counted,
    on a CPU, as they are made and given up. What an operator of torch takes while it works is not seen."""
    held = Held()
    with held:
        call()
    return held.most


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`now`: bytes of tensors made since it began that are still there; `most`: the most that there were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.most = 0, 0
        self._there: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and id(storage := x.untyped_storage()) not in given | self._there:
                self._take(storage)
        return result

    def _take(self, storage: torch.UntypedStorage) -> None:
        self._there.add(id(storage))
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._give_up, id(storage), storage.nbytes())

    def _give_up(self, which: int, size: int) -> None:
        self._there.discard(which)
        self.now -= size

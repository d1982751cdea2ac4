"""`bench memory`: the most that training takes, and the state that a sequence leaves behind at inference."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from linbench.bench.layer import LayerCase, build_layer, first_call, training_call
from linbench.bench.presets import Preset
from linbench.bench.timing import measure_peak_bytes
from linbench.engine.dispatch_mode import WatchingMode
from linbench.engine.layer_under_test import LayerUnderTest, tensor_leaves
from linbench.models.base import StateSize
from linbench.results.speed_labels import OURS

MISCOUNTED = "state_size"
"""Mark of a layer whose state does not hold as many floats as it declares."""


def cases(base: Sequence[LayerCase], preset: Preset) -> list[LayerCase]:
    """Return memory of each layer at every length."""
    return [
        replace(case, question="memory", length=length, batch=preset.batch(length))
        for case in base
        for length in preset.lengths
    ]


def measure(case: LayerCase) -> dict[str, Any]:
    """Measure the peak of a training step and the state of one sequence.

    Returns:
        `sides`, with `peak_bytes` beyond weights and input; `first_call` in seconds; if the layer
        declares one `state`: `bytes` of its tensors, `floats` among them, and the floats it declares; and
        the mark `MISCOUNTED` if these two differ.
    """
    side = build_layer(case)
    step, seconds = first_call(case, training_call, side)
    peak = measure_peak_bytes(step) if case.device != "cpu" else peak_allocated(step)
    result: dict[str, Any] = {"sides": {OURS: {"peak_bytes": peak}}, "first_call": seconds}
    if not LayerUnderTest(case.cell).cls.streams:
        return result
    mixer: Any = side.module
    state = list(tensor_leaves(mixer.init_state(1, capacity=case.length)))
    floats = sum(part.numel() for part in state if part.is_floating_point())
    size: StateSize | None = mixer.state_floats(case.length)
    declared = None if size is None else {**size._asdict(), "total": size.total}
    result["state"] = {"bytes": sum(part.nbytes for part in state), "floats": floats, "declared": declared}
    if size is not None and size.total != floats:
        result["marks"] = [MISCOUNTED]
    return result


def peak_allocated(call: Callable[[], Any]) -> int:
    """Return the most bytes that a call holds at once on a CPU, beyond what was there before.

    Tensors are counted as they are made and freed; what torch's operators use while they work is not seen.
    """
    tracker = AllocationTracker()
    with tracker:
        call()
    return tracker.peak


class AllocationTracker(WatchingMode):
    """Counter of the bytes of tensors made while it is active: `current` are alive, `peak` is the maximum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current, self.peak = 0, 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and id(storage := x.untyped_storage()) not in given | self._alive:
                self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        self._alive.add(id(storage))
        self.current += storage.nbytes()
        self.peak = max(self.peak, self.current)
        weakref.finalize(storage, self._remove, id(storage), storage.nbytes())

    def _remove(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.current -= size

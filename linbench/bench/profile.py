"""Where the time of a training step goes on a GPU: kernels by what they are for."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from linbench.engine.step import Step
from linbench.kernels.family import families

STEPS = 3
BATCH, CLIP_AND_ADAMW = "batch", "clipping and AdamW"
OTHER = "sums and what is elementwise"

_TORCH_KINDS = [
    ("gates", ("sigmoid", "Sigmoid", "silu", "Silu")),
    ("projections", ("aten::mm", "aten::bmm", "aten::addmm")),
    ("copies and casts", ("aten::copy_", "aten::cat")),
]
"""Kinds of work of torch's own operators, each with parts of their names."""


def parts(step: Step) -> dict[str, float]:
    """Seconds of device time of one step, by kind of work. The step runs as it is, not captured: the kernels
    are the same."""
    for _ in range(2):
        _taken(step)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(STEPS):
            _taken(step)
        torch.cuda.synchronize()
    kinds = kinds_of_work()
    found: dict[str, float] = defaultdict(float)
    for event in profiler.events() or []:
        for kernel in getattr(event, "kernels", []):
            found[_kind(event, kinds)] += kernel.duration / STEPS / 1e6
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _taken(step: Step) -> None:
    """One step, its parts named."""
    step.feed.ready()
    with record_function(BATCH):
        batch = step.feed.batch()
    step.differentiated(batch)
    with record_function(CLIP_AND_ADAMW):
        step.training.optimiser.step()


def kinds_of_work() -> list[tuple[str, tuple[str, ...]]]:
    """Return kinds of work with parts of the names of their events: first the kernel families', then torch's."""
    return [(family.profile_kind, family.profile_names) for family in families().values()] + _TORCH_KINDS


def _kind(event: Any, kinds: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Return the first kind of work which the name of an event, or of one that it is part of, tells of."""
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    for part in (BATCH, CLIP_AND_ADAMW):
        if part in names:
            return part
    for kind, words in kinds:
        if any(word in name for word in words for name in names):
            return kind
    return OTHER

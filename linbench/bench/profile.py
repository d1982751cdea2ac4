"""The time of a training step on a GPU, divided among kernels by what they are for."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from linbench.engine.step import Step
from linbench.kernels.family import families

PROFILED_STEPS = 3
BATCH, CLIP_AND_ADAMW = "batch", "clipping and AdamW"
OTHER = "sums and what is elementwise"

_TORCH_KINDS = [
    ("gates", ("sigmoid", "Sigmoid", "silu", "Silu")),
    ("projections", ("aten::mm", "aten::bmm", "aten::addmm")),
    ("copies and casts", ("aten::copy_", "aten::cat")),
]
"""Kinds of work of torch's own operators, each with parts of their names."""


def time_by_part(step: Step) -> dict[str, float]:
    """Return the seconds of device time of one step, by kind of work, longest first.

    The step is run as it is, not captured: its kernels are the same.
    """
    for _ in range(2):
        _run_named(step)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED_STEPS):
            _run_named(step)
        torch.cuda.synchronize()
    kinds = kinds_of_work()
    seconds: dict[str, float] = defaultdict(float)
    for event in profiler.events() or []:
        for kernel in getattr(event, "kernels", []):
            seconds[_kind(event, kinds)] += kernel.duration / PROFILED_STEPS / 1e6
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _run_named(step: Step) -> None:
    """Run one step, with names for the parts that no operator's name tells apart."""
    step.feed.refill()
    with record_function(BATCH):
        batch = step.feed.batch()
    step.forward_backward(batch)
    with record_function(CLIP_AND_ADAMW):
        step.training.optimiser.step()


def kinds_of_work() -> list[tuple[str, tuple[str, ...]]]:
    """Return kinds of work with parts of the names of their events: kernel families' first, then torch's."""
    return [(family.profile_kind, family.profile_names) for family in families().values()] + _TORCH_KINDS


def _kind(event: Any, kinds: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Return the kind of work of an event, by its own name or that of an event around it."""
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

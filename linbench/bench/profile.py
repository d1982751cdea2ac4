"""Where the time of a training step goes on a GPU: kernels by what they are for."""

from collections import defaultdict
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from linbench.engine.step import Step

STEPS = 3
BATCH, CLIP_AND_ADAMW = "batch", "clipping and AdamW"
OTHER = "sums and what is elementwise"

_KINDS = {
    "recurrence": ("matrix_state", "Eager", "attention", "Attention"),
    "short convolution": ("short_convolution",),
    "token shift": ("token_shift",),
    "norms": ("linbench_norm", "linbench::norm", "layer_norm", "LayerNorm", "_Norm"),
    "gates": ("decay_gate", "channel_decay", "erasure", "sigmoid", "Sigmoid", "silu", "Silu"),
    "head and loss": ("cross_entropy",),
    "embedding": ("embedding", "Embedding"),
    "projections": ("aten::mm", "aten::bmm", "aten::addmm"),
    "copies and casts": ("aten::copy_", "aten::cat"),
}
"""By what stands in the name of an operator, or of one that it is part of; the first that does."""


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
    found: dict[str, float] = defaultdict(float)
    for event in profiler.events() or []:
        for kernel in getattr(event, "kernels", []):
            found[_kind(event)] += kernel.duration / STEPS / 1e6
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _taken(step: Step) -> None:
    """One step, its parts named."""
    step.feed.ready()
    with record_function(BATCH):
        batch = step.feed.batch()
    step.differentiated(batch)
    with record_function(CLIP_AND_ADAMW):
        step.training.optimiser.step()


def _kind(event: Any) -> str:
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    for part in (BATCH, CLIP_AND_ADAMW):
        if part in names:
            return part
    return next(
        (kind for kind, words in _KINDS.items() if any(word in name for word in words for name in names)),
        OTHER,
    )

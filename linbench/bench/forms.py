"""`bench forms`: what a layer gains by computing its recurrence in parallel: the same training step in every
form of its kernels."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from linbench.bench.layer import Case
from linbench.bench.presets import Preset
from linbench.common.errors import UserError

FORMS = {"cpu": ("reference", "scan", "chunkwise"), "cuda": ("reference", "scan", "chunkwise", "triton")}
"""By kind of device: token by token; a parallel scan over transition matrices, there for this comparison
alone; a chunk at a time in torch; in Triton."""

HEAD_DIMS = (32, 64, 128)


def cases(
    base: Callable[[Preset], Sequence[Case]], preset: Preset, head_dims: Sequence[int] = ()
) -> list[Case]:
    """Training in every form, at every length, with as many heads as have each dimension.

    Args:
        base: cases for a preset, whose shapes are still to be given.

    Raises UserError: a dimension that does not divide the width.
    """
    dims = head_dims or [dim for dim in HEAD_DIMS if dim <= preset.d_model]
    if wrong := next((dim for dim in dims if preset.d_model % dim), None):
        raise UserError(
            f"--head-dims {wrong} does not divide --d-model {preset.d_model}; give one that does."
        )
    return [
        replace(case, question="train", backend=form, length=length, batch=preset.batch(length))
        for dim in dims
        for case in base(preset._replace(heads=preset.d_model // dim))
        for length in preset.lengths
        for form in FORMS[case.device.partition(":")[0]]
    ]

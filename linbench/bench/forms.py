"""`bench forms`: the same training step in every form of a layer's kernels, to see what each form gains."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from linbench.bench.layer import LayerCase
from linbench.bench.presets import Preset
from linbench.common.errors import UserError

FORMS = {"cpu": ("reference", "scan", "chunkwise"), "cuda": ("reference", "scan", "chunkwise", "triton")}
"""Forms of kernels, by kind of device.

They are: token by token; a parallel scan over transition matrices, which exists for this comparison only;
chunk by chunk in torch; in Triton.
"""

HEAD_DIMS = (32, 64, 128)
"""Head dimensions that are measured if none are given."""


def cases(
    layer_cases: Callable[[Preset], Sequence[LayerCase]], preset: Preset, head_dims: Sequence[int] = ()
) -> list[LayerCase]:
    """Return training in every form, at every head dimension and length.

    Args:
        layer_cases: returns the cases of a preset, without their shapes.
        head_dims: default: those of `HEAD_DIMS` that fit the width. The width stays, heads become fewer.

    Raises UserError: a dimension that does not divide the width.
    """
    dims = head_dims or [dim for dim in HEAD_DIMS if dim <= preset.d_model]
    wrong = next((dim for dim in dims if preset.d_model % dim), None)
    if wrong is not None:
        raise UserError(
            f"--head-dims {wrong} does not divide --d-model {preset.d_model}; give one that does."
        )
    layers = [case for dim in dims for case in layer_cases(preset._replace(heads=preset.d_model // dim))]
    planned = []
    for case, length in product(layers, preset.lengths):
        batch = preset.batch(length)
        for form in FORMS[case.device.partition(":")[0]]:
            planned.append(replace(case, question="train", backend=form, length=length, batch=batch))
    return planned

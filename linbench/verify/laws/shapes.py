"""The law of shapes and dtypes."""

import torch

from linbench.engine.layer_under_test import ROWS, LayerUnderTest
from linbench.experiments.loading import describe_error
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import dtype_name

SIZES = ((1, 1), (ROWS, 7), (3, 65))
"""Batches and lengths that it is called with."""


@law("shapes and dtypes", place=1, basic=True)
@torch.no_grad()
def shapes(subject: LayerUnderTest) -> Found:
    """The output is finite and has the shape and dtype of the input in float32, at any length and batch.

    It has in float64 and bfloat16, too, or it is noted that these are not taken.
    """
    notes = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        try:
            wrong = _misshapen(subject, dtype)
        except Exception as error:
            if dtype == torch.float32:
                raise
            wrong = describe_error(error)
        if wrong and dtype == torch.float32:
            return False, wrong
        if wrong:
            notes.append(f"not {dtype_name(dtype)}: {wrong}")
    tested = f"{len(SIZES)} shapes, {'float32' if notes else '3 dtypes'}"
    if subject.precision != torch.float64:
        notes.append(f"judged as {dtype_name(subject.precision)}, in which it computes")
    return True, "; ".join([tested, *notes])


def _misshapen(subject: LayerUnderTest, dtype: torch.dtype) -> str:
    """Return what is wrong with outputs in a dtype; nothing if they are right."""
    mixer = subject.build(dtype)
    for rows, length in SIZES:
        x = subject.tokens(length, dtype, rows=rows)
        y = mixer(x).y
        finite = bool(y.isfinite().all())
        if y.shape != x.shape or y.dtype != dtype or not finite:
            input_, output = (
                f"{list(x.shape)} in {dtype_name(dtype)}",
                f"{list(y.shape)} in {dtype_name(y.dtype)}",
            )
            return f"{input_} gives {output}" + ("" if finite else ", not finite")
    return ""

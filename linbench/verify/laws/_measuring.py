"""Measurements that several laws share."""

from collections.abc import Mapping

import torch
from torch import Tensor

from linbench.engine.layer_under_test import LAYER_POSITIONS
from linbench.verify.laws import Found

LENGTH = 70
"""Length of sequences: more than a chunk of 64, and no multiple of anything."""


def describe_call(index: int, training: bool) -> str:
    """Return in words where a mixer was looked at: in which layer, and whether in training."""
    return (", in training" if training else "") + LAYER_POSITIONS[index]


def within(limit: float, errors: Mapping[str, float], verb: str) -> Found:
    """Compare errors with a limit.

    Args:
        errors: by where they were found, the plainest place first.
        verb: what the mixer does, such as "differs".

    Returns: whether all are within the limit, and the first that is not with its place, or else the largest.
    """
    for where, error in errors.items():
        if error > limit:
            return False, f"{verb} by {error:.1e}{where}"
    return True, f"{verb} by {max(errors.values()):.1e}"


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without "torch."."""
    return str(dtype).removeprefix("torch.")


def root_mean_square(x: Tensor) -> float:
    """Return the root of the mean of squares, in float64."""
    return float(x.double().square().mean().sqrt())

"""`linbench doctor`: every kernel on this machine, compared with float64."""

import math
import os
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch

from linbench.common.errors import unknown
from linbench.engine.workers import outcomes
from linbench.experiments.precision import DTYPES, Precision
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.verify.kernel_cases import all_cases
from linbench.verify.kernel_errors import errors_of

__all__ = ["LIMITS", "Row", "Verdict", "examine", "how_kernels_run", "rows", "side_by_side"]

LIMITS: dict[Precision, tuple[float, float]] = {"fp32": (1e-5, 5e-5), "bf16": (8e-3, 1.5e-2)}
"""Largest relative error of outputs and states, and of gradients, that is right.

Chosen: about 80 and 400 rounding steps of float32, two and four of bfloat16.
"""

SECONDS = 240.0
"""A row that takes longer hangs."""


class Row(NamedTuple):
    """A case of a kernel in a precision, on a device."""

    kernel: str
    case: str
    precision: Precision
    device: str


class Verdict(NamedTuple):
    """The errors of a row, and what is wrong with it.

    Args:
        error, gradient_error: None if the case failed or gave non-finite numbers; `gradient_error` also if
            the kernel has no gradient.
        seconds: time of the first call; None if the case failed.
        reason: what is wrong, in one line; None if nothing is.
    """

    row: Row
    error: float | None
    gradient_error: float | None
    seconds: float | None
    reason: str | None

    @property
    def ok(self) -> bool:
        """True if the kernel is right."""
        return self.reason is None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict and its limits as JSON values."""
        limit, gradient_limit = LIMITS[self.row.precision]
        return {
            **self.row._asdict(),
            "error": self.error,
            "limit": limit,
            "gradient_error": self.gradient_error,
            "gradient_limit": gradient_limit,
            "seconds": self.seconds,
            "ok": self.ok,
            "reason": self.reason,
        }


def rows(device: str, kernels: Sequence[str] = ()) -> list[Row]:
    """Return the rows of `kernels`, or of all kernels if none is named. Raises UserError: an unknown name."""
    known = all_cases(device)
    for kernel in kernels:
        if kernel not in known:
            raise unknown("kernel", kernel, known)
    cases = [(kernel, case) for kernel in kernels or known for case in known[kernel]]
    return [Row(kernel, case, precision, device) for kernel, case in cases for precision in DTYPES]


def examine(
    rows: Sequence[Row], *, workers: int, tell: Callable[[Verdict], None] = lambda verdict: None
) -> list[Verdict]:
    """Judge rows.

    Args:
        workers: processes side by side, or 0 for this process alone.
        tell: called with each verdict as soon as it is there.

    Returns: verdicts in the order of the rows.
    """
    verdicts: dict[int, Verdict] = {}
    order = spread_by_kernel(rows) if workers else range(len(rows))
    judged = outcomes(verdict, [rows[place] for place in order], workers=workers, seconds=SECONDS)
    for turn, outcome in judged:
        place = order[turn]
        failed = Verdict(rows[place], None, None, None, outcome.failure)
        verdicts[place] = failed if outcome.failure else outcome.value
        tell(verdicts[place])
    return [verdicts[place] for place in range(len(rows))]


def spread_by_kernel(rows: Sequence[Row]) -> list[int]:
    """Return the places of the rows in an order that spreads every kernel's rows over the whole.

    Rows of one kernel launch much the same: two processes that begin with them at once compile it twice.
    """
    places_of: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places_of.setdefault(row.kernel, []).append(place)
    position = {}
    for places in places_of.values():
        for i, place in enumerate(places):
            position[place] = (i + 0.5) / len(places)
    return sorted(position, key=position.__getitem__)


def verdict(row: Row) -> Verdict:
    """Compare one row's kernel with float64, in this process."""
    if row.device.startswith("cuda"):
        torch.cuda.set_device(row.device)  # where Triton launches
    case = all_cases(row.device)[row.kernel][row.case](DTYPES[row.precision])
    errors = errors_of(case)
    limit, gradient_limit = LIMITS[row.precision]
    reasons = [
        _reason("outputs", errors.output, limit),
        _reason(f"gradients of {errors.worst}", errors.gradient, gradient_limit),
    ]
    reason = "; ".join(filter(None, reasons)) or None
    return Verdict(row, _finite(errors.output), _finite(errors.gradient), errors.seconds, reason)


def _reason(what: str, error: float | None, limit: float) -> str | None:
    if error is None or error <= limit:
        return None
    return f"{what} are off by {error:.1e}" if math.isfinite(error) else f"{what} are not finite"


def _finite(error: float | None) -> float | None:
    return error if error is not None and math.isfinite(error) else None


def how_kernels_run(device: str) -> str:
    """Return in words whether kernels are compiled, interpreted, or not run at all on a device."""
    try:
        triton = f"Triton {version('triton')}"
    except PackageNotFoundError:
        return "not at all, since Triton is not installed: the torch forms are verified"
    if not runs_triton(torch.empty(0, device=device)):
        return "not at all, since Triton needs a GPU: the torch forms are verified"
    return f"interpreted by {triton}" if INTERPRETED else f"compiled by {triton}"


def side_by_side(device: str) -> int:
    """Return how many processes to use on a device.

    None on a CPU, whose cores one process fills; on a GPU one per core but one, since they compile, and at
    most 12.
    """
    return 0 if device == "cpu" else max(1, min(12, (os.cpu_count() or 1) - 1))

"""Do the kernels tell the truth on this machine?"""

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
from linbench.verify.kernel_errors import errors_of
from linbench.verify.recurrence_cases import all_trials

__all__ = ["LIMITS", "Row", "Verdict", "examine", "how_kernels_run", "rows", "side_by_side"]

LIMITS: dict[Precision, tuple[float, float]] = {"fp32": (1e-5, 5e-5), "bf16": (8e-3, 1.5e-2)}
"""Largest relative error of outputs and states, and of gradients."""

SECONDS = 240.0
"""A row that takes longer hangs."""


class Row(NamedTuple):
    """What is verified: a case of a kernel in a precision, on a device."""

    kernel: str
    case: str
    precision: Precision
    device: str


class Verdict(NamedTuple):
    """What came out. Errors are None where the row did not end, or not with finite numbers, or of gradients
    that there are none of. reason: what is wrong, in one line."""

    row: Row
    error: float | None
    gradient_error: float | None
    seconds: float | None
    reason: str | None

    @property
    def ok(self) -> bool:
        """Whether the kernel tells the truth here."""
        return self.reason is None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        limit, gradient_limit = LIMITS[self.row.precision]
        numbers = {
            "error": self.error,
            "limit": limit,
            "gradient_error": self.gradient_error,
            "gradient_limit": gradient_limit,
        }
        return {
            **self.row._asdict(),
            **numbers,
            "seconds": self.seconds,
            "ok": self.ok,
            "reason": self.reason,
        }


def rows(device: str, kernels: Sequence[str] = ()) -> list[Row]:
    """All rows, or those of `kernels`. Raises UserError: there is no such kernel."""
    found = all_trials(device)
    for kernel in kernels:
        if kernel not in found:
            raise unknown("kernel", kernel, found)
    return [
        Row(kernel, case, precision, device)
        for kernel in kernels or found
        for case in found[kernel]
        for precision in DTYPES
    ]


def examine(
    these: Sequence[Row], *, workers: int, tell: Callable[[Verdict], None] = lambda verdict: None
) -> list[Verdict]:
    """Verdicts in the order of the rows; `tell` hears each as soon as it is there. workers: processes side by
    side, or 0 for none."""
    verdicts: dict[int, Verdict] = {}
    places = handed_out(these) if workers else range(len(these))
    for turn, outcome in outcomes(
        verdict, [these[place] for place in places], workers=workers, seconds=SECONDS
    ):
        place = places[turn]
        found = Verdict(these[place], None, None, None, outcome.failure) if outcome.failure else outcome.value
        verdicts[place] = found
        tell(found)
    return [verdicts[place] for place in range(len(these))]


def handed_out(these: Sequence[Row]) -> list[int]:
    """The places of the rows in the order in which processes take them: every kernel's spread over all. Rows
    of one kernel launch much the same, which two of them compile twice if they begin at once, and else
    once."""
    of = {
        kernel: [place for place, row in enumerate(these) if row.kernel == kernel]
        for kernel in dict.fromkeys(row.kernel for row in these)
    }
    share = {place: (i + 0.5) / len(places) for places in of.values() for i, place in enumerate(places)}
    return sorted(share, key=share.__getitem__)


def verdict(row: Row) -> Verdict:
    """The kernel against float64 in this process."""
    if row.device.startswith("cuda"):
        torch.cuda.set_device(row.device)  # where Triton launches
    trial = all_trials(row.device)[row.kernel][row.case](DTYPES[row.precision])
    found = errors_of(*trial)
    limit, gradient_limit = LIMITS[row.precision]
    reasons = [
        f"{what} are off by {error:.1e}" if math.isfinite(error) else f"{what} are not finite"
        for what, error, most in (
            ("outputs", found.output, limit),
            (f"gradients of {found.worst}", found.gradient, gradient_limit),
        )
        if error is not None and not error <= most
    ]
    finite = [
        error if error is not None and math.isfinite(error) else None
        for error in (found.output, found.gradient)
    ]
    return Verdict(row, finite[0], finite[1], found.seconds, "; ".join(reasons) or None)


def how_kernels_run(device: str) -> str:
    """In words: compiled, interpreted, or not at all."""
    try:
        triton = f"Triton {version('triton')}"
    except PackageNotFoundError:
        return "not at all, since Triton is not installed: the torch forms are verified"
    if not runs_triton(torch.empty(0, device=device)):
        return "not at all, since Triton needs a GPU: the torch forms are verified"
    return f"interpreted by {triton}" if INTERPRETED else f"compiled by {triton}"


def side_by_side(device: str) -> int:
    """How many processes to use: none on a CPU, whose cores one process fills; on a GPU as many as can
    compile at once, up to 12."""
    return 0 if device == "cpu" else max(1, min(12, (os.cpu_count() or 1) - 1))

"""Stored speeds that were measured with kernels that have become much faster or slower since.

A kernel family's `VERSION` says that its results changed. Its speed can change while results stay, and then
an older speed beside a newer one compares two kernels and not two layers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from linbench.results.schema.benchmarks import SpeedResult


class Change(NamedTuple):
    """A change that made calls of a kernel family more than 1.5 times as long, or less than 2/3 as long."""

    family: str
    """The kernel family that changed."""
    about: str
    """The calls that it concerns, in words."""
    when: str
    """The time of the commit (UTC, ISO 8601). Results that do not say which changes their code had are judged
    by their date."""
    on_gpu: bool
    """True if it concerns GPUs, false if CPUs."""
    concerns: Callable[[Mapping[str, object]], bool]
    """Returns whether it concerns a layer with the given settings."""


def _is_restricted(settings: Mapping[str, object]) -> bool:
    """Return whether attention has gates, slopes or a window."""
    return (
        "forget_bias" in settings
        or settings.get("window") is not None
        or settings.get("positions") == "alibi"
    )


CHANGES = (
    Change(
        "attention",
        "attention with gates, slopes or a window",
        "2026-11-25T00:28:40+00:00",
        True,
        _is_restricted,
    ),
)
"""The changes in the order of their commits. Whoever makes such a change adds a line. Every result says how
many of them its code had."""


def outdated_reason(result: SpeedResult) -> str | None:
    """Return in words why linbench's side of a layer's stored speed is outdated; None if it is not."""
    bench, known = result["bench"], result.get("kernel_changes")
    families, settings = bench["layer"].get("kernel", {}), bench["layer"]["settings"]
    for number, change in enumerate(CHANGES, start=1):
        older = result.get("when", "") < change.when if known is None else known < number
        if (
            older
            and change.family in families
            and change.on_gpu == (bench["device"] != "cpu")
            and change.concerns(settings)
        ):
            commit = result["environment"]["commit"]
            return (
                f"of an older kernel ({change.about}{f', commit {commit[:10]}' if commit else ''}): not"
                " comparable"
            )
    return None

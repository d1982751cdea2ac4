"""Which stored speeds were measured with kernels that have become much faster or slower since.

A kernel family's `VERSION` says that its results changed. Its speed can change while results stay, and then
an older speed beside a newer one compares two kernels and not two layers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from linbench.results.schema.benchmarks import SpeedResult


class Change(NamedTuple):
    """A change that made calls of a kernel family more than half as long again, or less than two thirds as
    long."""

    family: str
    """The kernel family, among those of the layer that was measured."""
    about: str
    """The calls that it concerns, for readers."""
    when: str
    """The time of the commit (UTC, ISO 8601): by it older speeds are judged that do not say which changes
    their code had."""
    on_gpu: bool
    """Whether it concerns GPUs, or CPUs."""
    concerns: Callable[[Mapping[str, object]], bool]
    """Whether it concerns a layer with these settings."""


def _sees_less(settings: Mapping[str, object]) -> bool:
    """Whether attention has gates, slopes or a window."""
    return (
        "forget_bias" in settings
        or settings.get("window") is not None
        or settings.get("positions") == "alibi"
    )


CHANGES = (
    Change(
        "attention", "attention with gates, slopes or a window", "2026-11-25T00:28:40+00:00", True, _sees_less
    ),
)
"""In the order of their commits. Who makes such a change adds a line; every speed measured since says how
many of them its code had."""


def outdated(result: SpeedResult) -> str | None:
    """Return why our side of a layer's stored speed is no longer that of our code, in words; None where it
    is."""
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

"""Stored speeds that were measured with kernels that have changed since.

An older speed beside a newer one compares two kernels and not two layers. A kernel family's `VERSION` says
that its results changed, so speeds of several versions never stand side by side. Its speed can change much
while results stay; such changes are listed here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from linbench.results.schema.benchmarks import BenchmarkResult, SpeedResult


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


def newest_versions(results: Iterable[BenchmarkResult]) -> dict[str, int]:
    """Return the newest version of each kernel family that any of the results was measured with."""
    newest: dict[str, int] = {}
    for result in results:
        for family, version in _versions(result):
            newest[family] = max(version, newest.get(family, version))
    return newest


def older_reason(result: BenchmarkResult, newest: Mapping[str, int]) -> str | None:
    """Return in words which kernel of a result is older than the newest; None if none is."""
    for family, version in _versions(result):
        if version < newest.get(family, version):
            return f"of an older kernel ({family}, version {version} of {newest[family]}): not comparable"
    return None


def _versions(result: BenchmarkResult) -> Iterable[tuple[str, int]]:
    """Return each kernel family of a result with its version; a family may come several times."""
    if result["kind"] == "operation":
        return result["bench"].get("kernels", {}).items()
    if result["kind"] == "speed":
        return result["bench"]["layer"].get("kernel", {}).items()
    if result["kind"] == "draw" or result["kind"] == "sweep":
        return ()
    model = result["bench"]["model"]
    parts = [model["backbone"].get("kernel", {}), *(layer.get("kernel", {}) for layer in model["layers"])]
    return [pair for part in parts for pair in part.items()]


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

from datetime import datetime
from typing import Any

import pytest

from linbench.common.hashing import canonical
from linbench.experiments.registry import registry
from linbench.report.tables.benchmarks import bench_tables
from linbench.report.tables.layer_speeds import tables
from linbench.results.benchmarks import kernel_groups
from linbench.results.kernel_changes import CHANGES, newest_versions, older_reason, outdated_reason
from linbench.results.layer_speeds import select_speeds
from linbench.results.schema import Result
from linbench.results.speed_labels import AS_CALLED, OURS
from linbench.results.speeds import speeds
from tests.helpers.speeds import a_speed

BEFORE, AFTER = "2026-11-24T12:00:00+00:00", "2026-11-26T12:00:00+00:00"
GPU = "NVIDIA H200"


def fox(label: str = "fox", device: str = GPU, settings: dict[str, Any] | None = None, **more: Any) -> Result:
    found = a_speed(
        label,
        settings={"forget_bias": 8.0, "window": None, "positions": "none"} if settings is None else settings,
        **more,
    )
    found["bench"] |= {
        "device": device,
        "layer": {**found["bench"]["layer"], "kernel": {"attention": 2, "norms": 2}},
    }
    return found


def test_every_change_is_of_a_family_that_is_there_and_of_a_time() -> None:
    families = {
        family for entry in registry("model").entries.values() for family in entry.cls.kernel_families
    }
    assert {change.family for change in CHANGES} <= families
    assert [change.when for change in CHANGES] == sorted(change.when for change in CHANGES)
    assert all(datetime.fromisoformat(change.when).utcoffset() is not None for change in CHANGES)


@pytest.mark.parametrize(
    ("result", "old"),
    [
        (fox(when=BEFORE), True),
        (fox(), True),  # it does not say when, as none did once
        (fox(when=AFTER), False),
        (fox(when=AFTER, kernel_changes=0), True),  # an old checkout, timed late
        (fox(when=BEFORE, kernel_changes=len(CHANGES)), False),
        (fox(when=BEFORE, device="cpu"), False),
        (fox("attention", settings={"positions": "rope", "window": None}, when=BEFORE), False),
        (fox("attention", settings={"positions": "alibi", "window": None}, when=BEFORE), True),
        (fox("attention", settings={"positions": "rope", "window": 16}, when=BEFORE), True),
        (a_speed(when=BEFORE, bench={"device": GPU}), False),
    ],
)
def test_a_speed_is_outdated_where_its_kernel_has_changed_since(result: Result, old: bool) -> None:
    assert (outdated_reason(result) is not None) is old


def test_an_outdated_speed_stands_in_its_table_without_a_number_and_says_why() -> None:
    changed = fox("fox[forget_bias=8]", settings={"forget_bias": 8.0, "heads": 4}, when=BEFORE, peer="fla")
    results = [fox("fox", when=AFTER), changed, a_speed(bench={"device": GPU})]
    (found,) = tables(results)
    rows = {row["layer"]: row for row in found.frame.to_dict("records")}
    assert rows["fox"]["256"] != "–" != rows["deltanet"]["256"]
    old = rows["fox[forget_bias=8]"]
    assert (old["256"], old["growth"], old["roofline"], old["first call, s"]) == ("–", "–", "–", "–")
    reason = outdated_reason(changed)
    assert reason is not None
    assert old["notes"].startswith(reason)
    assert f"older kernel ({CHANGES[0].about}, commit abcdef0123)" in reason
    assert rows["fox[forget_bias=8], fla"]["256"] != "–", "a peer has no kernel of ours"
    assert "older kernel" not in rows["fox"]["notes"] + rows["deltanet"]["notes"]


def test_an_outdated_speed_is_no_point_beside_recall() -> None:
    results = [fox("fox", when=AFTER), fox("fox", settings={"forget_bias": 0.0}, when=BEFORE)]
    layers = [canonical(result["bench"]["layer"]) for result in results]
    way = select_speeds(speeds(results), "train", layers, length=256)
    assert way is not None
    assert [way.missing_reason(layer) for layer in layers] == [None, "older kernel"]
    assert [
        series.rate(256, AS_CALLED) is None for series in speeds(results)[0].series if series.side == OURS
    ].count(True) == 1


def with_kernels(versions: dict[str, int], **more: Any) -> Result:
    """Return a speed of a layer that was measured with kernels of these versions."""
    found = a_speed(**more)
    found["bench"]["layer"] = {**found["bench"]["layer"], "kernel": versions}
    return found


def test_a_kernel_of_an_older_version_than_another_is_outdated() -> None:
    old, new = with_kernels({"matrix_state": 3, "norms": 2}), with_kernels({"matrix_state": 4})
    newest = newest_versions([old, new])
    assert newest == {"matrix_state": 4, "norms": 2}
    assert older_reason(new, newest) is None
    reason = older_reason(old, newest)
    assert reason is not None
    assert "matrix_state, version 3" in reason
    assert older_reason(old, newest_versions([old])) is None, "alone it stands beside nothing newer"


def test_a_speed_of_an_older_version_stands_in_its_table_without_a_number() -> None:
    results = [
        with_kernels({"matrix_state": 3}, label="gla", settings={"heads": 2}),
        with_kernels({"matrix_state": 4}, label="deltanet"),
    ]
    (found,) = tables(results)
    rows = {row["layer"]: row for row in found.frame.to_dict("records")}
    assert rows["gla"]["256"] == "–" != rows["deltanet"]["256"]
    assert rows["gla"]["notes"].startswith(str(older_reason(results[0], {"matrix_state": 4})))
    layers = [canonical(result["bench"]["layer"]) for result in results]
    way = select_speeds(speeds(results), "train", layers, length=256)
    assert way is not None
    assert [way.missing_reason(layer) for layer in layers] == ["older kernel", None]


def an_operation(label: str, version: int) -> Result:
    """Return a timing of a kernel of a version."""
    timing = {"median": 1.0, "low": 0.9, "high": 1.1, "calls": 9}
    side = {"forward": {AS_CALLED: timing}, "both": {AS_CALLED: timing}, "peak_bytes": 1 << 20}
    found = a_speed(label) | {"kind": "operation", "sides": {OURS: side}}
    shape = {"B": 1, "T": 16, "H": 1, "D": 16}
    bench = {"operation": label, "kernels": {"matrix_state": version}, "shape": shape, "peer": None}
    return found | {"bench": {"precision": "bf16", "device": "cpu", **bench}}


def test_a_kernel_of_an_older_version_is_left_out_of_its_table_and_named() -> None:
    results = [an_operation("gla", 3), an_operation("deltanet", 4)]
    (group,) = kernel_groups(results)
    assert [result["label"] for result in group.results] == ["deltanet"]
    assert group.outdated == ("gla",)
    (table,) = bench_tables(results)
    assert "older kernels: gla." in table.caption

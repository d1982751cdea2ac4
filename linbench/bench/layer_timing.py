"""Timing of a layer's call, linbench's and the peer's in turn."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from linbench.bench import peers
from linbench.bench.layer import LayerCase, MakeCall, build_layer, first_call, kernel_context
from linbench.bench.layer_side import Side
from linbench.bench.machine import hold_load
from linbench.bench.timing import time_as_called, time_replayed_if_possible
from linbench.experiments.precision import DTYPES
from linbench.models.costs import work_bytes, work_flops
from linbench.results.speed_labels import OURS

MAX_CAPTURED_SECONDS = 1.0
"""Longest call that is captured as a CUDA graph.

A longer one has more launches than a graph should hold, or so few that the graph changes nothing.
"""


def precompile(case: LayerCase, make: MakeCall) -> float:
    """Call linbench's side and the peer's once, so that their kernels are compiled before they are timed.

    Returns:
        seconds of linbench's first call.
    """
    with kernel_context(case):
        _, seconds = first_call(case, make, build_layer(case))
        if case.peer is not None:
            with suppress(Exception):  # the peer's fault is reported when it is timed
                side = peers.build_peer_layer(case.peer.name, case, compiling=True)
                first_call(case, make, side)
    return seconds


def time_sides(case: LayerCase, make: MakeCall) -> dict[str, Any]:
    """Time linbench's call and the peer's in turn. A fault of the peer's becomes a reason on its side.

    On a GPU work is still under way on return, so that `machine.marks` reads the load of a busy device.

    Returns:
        `sides`; `first_call`, in seconds; and `cost`, the least that a call takes.
    """
    side = build_layer(case)
    calls: dict[str, Callable[[], Any]] = {}
    refused: dict[str, dict[str, str]] = {}
    calls[OURS], seconds = first_call(case, make, side)
    if case.peer is not None:
        name = case.peer.name
        built, reason = peers.try_build(
            name,
            case.device,
            "layers",
            lambda: first_call(case, make, peers.build_peer_layer(name, case)),
        )
        if built is None:
            refused[name] = reason
        else:
            calls[name], _ = built
    sides = _time_calls(case, calls)
    if case.device != "cpu":
        hold_load(calls[OURS], sides[OURS]["as_called"]["median"])
    return {"sides": sides | refused, "first_call": seconds, "cost": least_cost(case, side)}


def _time_calls(case: LayerCase, calls: Mapping[str, Callable[[], Any]]) -> dict[str, dict[str, Any]]:
    """Time each call as called, and on a GPU replayed as well, or note why that is not possible."""
    cuda = case.device != "cpu"
    as_called = time_as_called(calls, repeats=case.repeats, cuda=cuda)
    sides: dict[str, dict[str, Any]] = {
        name: {"as_called": spread._asdict()} for name, spread in as_called.items()
    }
    if not cuda:
        return sides
    short = {name: call for name, call in calls.items() if as_called[name].median <= MAX_CAPTURED_SECONDS}
    replays, reasons = time_replayed_if_possible(short, repeats=case.repeats) if short else ({}, {})
    too_long = f"not captured: a call takes more than {MAX_CAPTURED_SECONDS:g} s"
    for name, side in sides.items():
        if name in replays:
            side["replayed"] = replays[name]._asdict()
        else:
            side["note"] = reasons.get(name, too_long)
    return sides


def least_cost(case: LayerCase, side: Side) -> dict[str, float | None]:
    """Return the least floating-point operations and bytes of linbench's call.

    Each is None if the layer does not declare what it follows from.
    """
    assert case.question != "memory"
    sizes: dict[str, int] = {"batch": case.batch, "length": case.length}
    mixer: Any = side.module
    itemsize = DTYPES[case.precision].itemsize
    return {
        "flops": work_flops(mixer, case.question, **sizes),
        "bytes": work_bytes(mixer, case.question, **sizes, itemsize=itemsize),
    }

"""The peers that benchmarks can measure: one module each, found by a scan of this folder."""

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, TypeVar

import torch

from linbench.bench.case import PeerVersion
from linbench.bench.layer import LayerCase
from linbench.bench.layer_side import Side
from linbench.bench.peer import Measured, OperationCalls, Peer, UnsupportedByPeerError
from linbench.common.errors import unknown
from linbench.common.scan import submodules
from linbench.engine.workers import one_line
from linbench.experiments.cell import Cell
from linbench.experiments.precision import DTYPES
from linbench.tasks.base import Task

Built = TypeVar("Built")
Function = TypeVar("Function")


def find_peers() -> dict[str, Peer]:
    """Return all peers by name. Packages that they measure are not imported."""
    declared: list[Peer] = [module.PEER for module in submodules(sys.modules[__name__])]
    return {peer.name: peer for peer in declared}


def resolve_peer(name: str | None, device: str, measured: Measured) -> PeerVersion | None:
    """Return the peer named by `--peer` with its version; None if no name is given.

    A peer that is not installed has no version. Raises UserError: no peer of that name for what is measured.
    """
    if name is None:
        return None
    unavailable_reason(name, device, measured)
    return PeerVersion(name, version_of(name))


def unavailable_reason(name: str, device: str, measured: Measured) -> str | None:
    """Return why a peer cannot run here, or None if it can.

    Raises UserError: no peer of that name for what is measured.
    """
    peers = {other: peer for other, peer in find_peers().items() if measured in peer.measures}
    if name not in peers:
        raise unknown(f"peer for {measured}", name, list(peers))
    peer = peers[name]
    if find_spec(peer.package) is None:
        return f"{peer.distribution} is not installed; pip install 'linbench[{peer.package}]' brings it"
    if device.partition(":")[0] not in peer.runs_on:
        only = {"cpu": "CPU", "cuda": "GPU"}[peer.runs_on[0]]
        return f"{peer.distribution} runs on a {only} only"
    return None


def try_build(
    name: str, device: str, measured: Measured, build: Callable[[], Built]
) -> tuple[Built | None, dict[str, str]]:
    """Build something of a peer. A peer that cannot run here, or fails, gives a reason instead.

    Returns:
        what `build` returned and an empty dictionary, or None and the peer's side of the result: its reason.
    """
    if (missing := unavailable_reason(name, device, measured)) is not None:
        return None, {"reason": missing}
    try:
        return build(), {}
    except UnsupportedByPeerError as error:
        return None, {"reason": str(error)}
    except Exception as error:  # a fault of the peer must not cost linbench's own numbers
        return None, {"reason": one_line(error)}


def version_of(name: str) -> str | None:
    """Return the installed version of a peer's distribution, None if it is not installed."""
    try:
        return version(find_peers()[name].distribution)
    except PackageNotFoundError:
        return None


def note_of(name: str) -> str:
    """Return the sentence that belongs beside every number of a peer."""
    return find_peers()[name].note


def build_trainer(name: str, cell: Cell, *, compiling: bool = False) -> Callable[[], None]:
    """Build the peer's model of a cell; each call of what is returned takes one training step.

    Args:
        compiling: as for `operation_calls`.
    """
    return _function(find_peers()[name].train_step)(cell, compiling)


def build_generator(name: str, task: Task, count: int) -> Callable[[], Any]:
    """Return a function that draws `count` examples as the peer does.

    Raises UnsupportedByPeerError: the peer does not draw this task.
    """
    return _function(find_peers()[name].draw)(task, count)


def build_peer_layer(name: str, case: LayerCase, *, compiling: bool = False) -> Side:
    """Build the peer's layer of a case's sizes, on its device and in its precision.

    Args:
        compiling: as for `operation_calls`.

    Raises UnsupportedByPeerError: the peer has no such layer; and whatever its own code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        side = _function(find_peers()[name].layer)(case, compiling)
    side.module.to(case.device, DTYPES[case.precision]).eval()
    return side


def operation_calls(name: str, *, compiling: bool = False) -> OperationCalls:
    """Return the peer's operations, by linbench's names.

    Args:
        compiling: fill caches only, in many processes at once, where tuning by time means nothing.
    """
    return _function(find_peers()[name].operations)(compiling)


def _function(declared: Function | None) -> Function:
    assert declared is not None, "resolve_peer lets no other peer through"
    return declared

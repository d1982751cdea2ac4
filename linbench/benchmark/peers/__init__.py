"""Other implementations of the same operations, to be measured beside ours. None is needed for anything else."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from torch import Tensor

from linbench.common.errors import UserError, unknown

Calls = dict[str, Callable[[dict[str, Tensor]], Tensor]]


class Peer(NamedTuple):
    """package: what is imported; its distribution; the module here that calls it; and a note that belongs beside every number."""

    package: str
    distribution: str
    module: str
    needs_gpu: bool
    note: str


PEERS = {
    "fla": Peer(
        "fla",
        "flash-linear-attention",
        "linbench.benchmark.peers.fla",
        True,
        "fla refuses scalar gates on Hopper with Triton 3.4 to 3.7.0, where their gradients may be wrong (its issue 640); the guard is lifted, for timing "
        "only. It tunes with 20 ms for each configuration instead of 100.",
    ),
    "transformers": Peer(
        "transformers",
        "transformers",
        "linbench.benchmark.peers.transformers",
        False,
        "transformers: the torch form of Qwen3-Next's gated delta rule, which it uses where flash-linear-attention is not installed.",
    ),
}


def check(name: str, device: str) -> None:
    """Raises UserError: there is no such peer, it is not installed, or it does not run on this device."""
    if name not in PEERS:
        raise unknown("peer", name, PEERS)
    peer = PEERS[name]
    if find_spec(peer.package) is None:
        raise UserError(f"{peer.distribution} is not installed; pip install 'linbench[{name}]' brings it, and without --peer the rest is measured.")
    if peer.needs_gpu and device == "cpu":
        raise UserError(f"{peer.distribution} runs on a GPU only; without --peer the rest is measured.")


def titled(name: str) -> str:
    """The peer with its version, for a note."""
    try:
        return f"{PEERS[name].distribution} {version(PEERS[name].distribution)}"
    except PackageNotFoundError:
        return PEERS[name].distribution


def calls(name: str, *, compiling: bool = False) -> Calls:
    """By operation, the peer's output from our inputs. compiling: to fill caches in many processes at once, where timing means nothing."""
    found: Calls = import_module(PEERS[name].module).calls(compiling)
    return found

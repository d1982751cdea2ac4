"""Other implementations of the same, to be measured beside ours. None is needed for anything else."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from linbench.common.errors import unknown
from linbench.engine.workers import one_line
from linbench.experiments.cell import Cell
from linbench.experiments.precision import DTYPES
from linbench.tasks.base import Task

if TYPE_CHECKING:
    from linbench.bench.layer import Case
    from linbench.bench.layer_side import Side

Measured = Literal["operations", "training steps", "draws", "layers"]
Made = TypeVar("Made")
Calls = dict[str, Callable[[dict[str, Tensor]], Tensor]]


class LacksError(Exception):
    """A peer has nothing of the kind that is asked for; in words that follow its name."""


class Peer(NamedTuple):
    """package: what is imported, and the extra of linbench that brings it; its distribution; the module here
    that calls it; on which kinds of device it runs; a note that belongs beside every number; and of what it
    is a peer."""

    package: str
    distribution: str
    module: str
    runs_on: tuple[str, ...]
    note: str
    measures: tuple[Measured, ...] = ("operations",)


PEERS = {
    "fla": Peer(
        "fla",
        "flash-linear-attention",
        "linbench.bench.peers.fla",
        ("cuda",),
        "fla refuses scalar gates on Hopper with Triton 3.4 to 3.7.0, where their gradients may be wrong (its"
        " issue 640); the guard is lifted, for timing only. It tunes with 20 ms for each configuration"
        " instead of 100.",
        ("operations", "layers"),
    ),
    "transformers": Peer(
        "transformers",
        "transformers",
        "linbench.bench.peers.transformers",
        ("cpu", "cuda"),
        "transformers: the torch form of Qwen3-Next's gated delta rule, which it uses where"
        " flash-linear-attention is not installed.",
        ("operations", "layers"),
    ),
    "sdpa": Peer(
        "torch",
        "torch",
        "linbench.bench.peers.sdpa",
        ("cpu", "cuda"),
        "sdpa: softmax attention of torch's own parts, without positions, convolution or norms; decoding"
        " writes its cache in place.",
        ("layers",),
    ),
    "zoology-style": Peer(
        "fla",
        "flash-linear-attention",
        "linbench.bench.peers.zoology_style",
        ("cuda",),
        "zoology-style: a step as recall benchmarks usually take it, with layers of flash-linear-attention"
        " 0.6 (softmax: torch's) and the same widths, heads and layers: eager, autocast, logits at every"
        " position, batches made beforehand on the host, two looks at the loss. fla's guard against scalar"
        " gates on Hopper is lifted, for timing only.",
        ("training steps",),
    ),
    "numpy": Peer(
        "numpy",
        "numpy",
        "linbench.bench.peers.numpy_draws",
        ("cpu",),
        "numpy: MQAR as it is usually drawn, an example at a time, its keys, its values and its places by a"
        " call of numpy.random.choice each.",
        ("draws",),
    ),
}


def named(name: str | None, device: str, measures: Measured) -> tuple[str, str | None] | None:
    """A peer with its version, None where it is not installed. Raises UserError: there is no such peer for
    what is measured."""
    if name is None:
        return None
    lacking(name, device, measures)
    return name, version_of(name)


def lacking(name: str, device: str, measures: Measured) -> str | None:
    """Why a peer cannot be had here, if so. Raises UserError: there is no such peer for what is measured."""
    names = [other for other, peer in PEERS.items() if measures in peer.measures]
    if name not in names:
        raise unknown(f"peer for {measures}", name, names)
    peer = PEERS[name]
    if find_spec(peer.package) is None:
        return f"{peer.distribution} is not installed; pip install 'linbench[{peer.package}]' brings it"
    if device.partition(":")[0] not in peer.runs_on:
        return f"{peer.distribution} runs on a { ({'cpu': 'CPU', 'cuda': 'GPU'}[peer.runs_on[0]]) } only"
    return None


def made_by(
    name: str, device: str, measures: Measured, make: Callable[[], Made]
) -> tuple[Made | None, dict[str, str]]:
    """What `make` makes of the peer; or None, and the reason why as its side of a result has it."""
    if (missing := lacking(name, device, measures)) is not None:
        return None, {"reason": missing}
    try:
        return make(), {}
    except LacksError as error:
        return None, {"reason": str(error)}
    except Exception as error:  # a fault of the peer's is a word in its row
        return None, {"reason": one_line(error)}


def version_of(name: str) -> str | None:
    """Of a peer that is installed."""
    try:
        return version(PEERS[name].distribution)
    except PackageNotFoundError:
        return None


def titled(name: str) -> str:
    """The peer with its version, for a note."""
    return " ".join(filter(None, (PEERS[name].distribution, version_of(name))))


def trainer(name: str, cell: Cell, *, compiling: bool = False) -> Callable[[], None]:
    """The peer's model of a cell: each call takes one training step. compiling: as `calls`."""
    found: Callable[[], None] = import_module(PEERS[name].module).train_step(cell, compiling)
    return found


def drawer(name: str, task: Task, count: int) -> Callable[[], Any]:
    """Each call draws so many of the peer's examples. Raises LacksError: a task that it does not draw."""
    found: Callable[[], Any] = import_module(PEERS[name].module).draw(task, count)
    return found


def layer(name: str, case: "Case", *, compiling: bool = False) -> "Side":
    """The peer's layer of a case's sizes, on its device, in its precision. compiling: as `calls`.

    Raises LacksError: it has no such layer; whatever its own code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        side: Side = import_module(PEERS[name].module).layer(case, compiling)
    side.module.to(case.device, DTYPES[case.precision]).eval()
    return side


def calls(name: str, *, compiling: bool = False) -> Calls:
    """By operation, the peer's output from our inputs. compiling: to fill caches in many processes at once,
    where timing means nothing."""
    found: Calls = import_module(PEERS[name].module).calls(compiling)
    return found

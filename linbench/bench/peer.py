"""Peers: other implementations that benchmarks measure beside linbench's, in the same process and in turn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from linbench.bench.layer import LayerCase
from linbench.bench.layer_side import Side
from linbench.experiments.cell import Cell
from linbench.tasks.base import Task

Measured = Literal["operations", "training steps", "draws", "layers"]
"""Kinds of benchmark that a peer can take part in."""

OperationCalls = dict[str, Callable[[dict[str, Tensor]], Tensor]]
"""Functions from linbench's inputs to the peer's output, by the name of the operation."""


class UnsupportedByPeerError(Exception):
    """A peer has no counterpart of what is measured; the message follows the peer's name."""


@dataclass(frozen=True)
class Peer:
    """Another implementation, declared as `PEER` in a module of `linbench.bench.peers`.

    Packages of the peer are imported inside the four functions only: none of them is needed by linbench.

    Args:
        name: value of `--peer`.
        package: the package that the functions import; also the extra of linbench that installs it.
        distribution: name of the package on the package index.
        runs_on: kinds of device, of `cpu` and `cuda`.
        note: sentence shown beside every number of the peer.
        operations: returns calls of operations. Its argument says whether they are only to be compiled, in
            many processes at once, where tuning by time means nothing.
        layer: builds the peer's layer for a case; same last argument.
        train_step: builds the peer's model of a cell and returns a function that takes one training step;
            same last argument.
        draw: returns a function that draws that many of the peer's examples.
    """

    name: str
    package: str
    distribution: str
    runs_on: tuple[str, ...]
    note: str
    operations: Callable[[bool], OperationCalls] | None = None
    layer: Callable[[LayerCase, bool], Side] | None = None
    train_step: Callable[[Cell, bool], Callable[[], None]] | None = None
    draw: Callable[[Task, int], Callable[[], Any]] | None = None

    @property
    def measures(self) -> list[Measured]:
        """Benchmarks that the peer takes part in: those it has a function for."""
        functions: dict[Measured, Any] = {
            "operations": self.operations,
            "layers": self.layer,
            "training steps": self.train_step,
            "draws": self.draw,
        }
        return [kind for kind, function in functions.items() if function is not None]

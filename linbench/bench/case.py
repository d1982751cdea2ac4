"""What a benchmark asks: one thing of ours at one shape on one device, and a peer's beside it. Its answer is
one stored result."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch

from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.experiments.device import device_class
from linbench.results.environment import cpu_name

Peer = tuple[str, str | None]
"""Its name and version, the latter None where it is not installed."""


class Asked(ABC):
    """A frozen dataclass, which can be sent to another process. peer: of what is measured in turn with ours,
    if anything is. str: for whoever waits for it."""

    kind: ClassVar[str]
    """Of its result, in a store."""
    seconds: ClassVar[float] = 600.0
    """What takes longer hangs."""
    fresh: ClassVar[bool] = False
    """Whether it is found in a process of its own."""

    peer: Peer | None

    @property
    @abstractmethod
    def device(self) -> str:
        """Where it runs."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What is asked, in a table's first column."""

    @property
    @abstractmethod
    def particulars(self) -> dict[str, Any]:
        """All that names the result beside its kind, peer and place, as plain JSON values."""

    @property
    def alone(self) -> Self:
        """Without the peer."""
        return replace(self, peer=None)  # type: ignore[type-var]  # every kind is a dataclass

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that names the result. A peer that is not installed has no version, so that installing
        it asks anew."""
        peer = None if self.peer is None else dict(zip(("name", "version"), self.peer, strict=True))
        return {"schema": SCHEMA, "kind": self.kind, **self.particulars, "peer": peer, **place(self.device)}

    @cached_property
    def id(self) -> str:
        """SHA-256 of the identity in canonical form."""
        return digest(self.identity)

    @property
    def launches(self) -> str:
        """The same for what launches the same kernels, which are compiled once."""
        return self.id


class Placed(Asked):
    """With its device as it is told: where."""

    where: str

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.where


def anywhere(identity: Mapping[str, Any]) -> str:
    """A digest that is the same for one question, whichever CPU answers it."""
    return digest({name: value for name, value in identity.items() if name != "processor"})


def place(device: str) -> dict[str, Any]:
    """What of a device names a result: the kind of a GPU; of a CPU also its name, and how many threads
    compute."""
    of_cpu = (
        {} if device != "cpu" else {"processor": {"name": cpu_name(), "threads": torch.get_num_threads()}}
    )
    return {"device": device_class(device), **of_cpu}

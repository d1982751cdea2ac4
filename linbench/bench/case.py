"""Cases of benchmarks: one implementation at one shape on one device, perhaps with a peer beside it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch

from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.experiments.device import device_class
from linbench.results.environment import cpu_name


class PeerVersion(NamedTuple):
    """Name and version of a peer. The version is None if the peer is not installed."""

    name: str
    version: str | None


class BenchmarkCase(ABC):
    """One case of a benchmark; its answer is one stored result.

    Each kind of benchmark has a frozen dataclass of it, which can be sent to another process. `str` of a case
    names it in progress messages.
    """

    kind: ClassVar[str]
    """Kind of its result in a store."""
    timeout: ClassVar[float] = 600.0
    """Seconds after which its measurement counts as hung."""
    fresh_process: ClassVar[bool] = False
    """True if each case is measured in a process of its own."""
    in_caller: ClassVar[bool] = False
    """True if it is measured in the calling process, and nothing is done before: it starts workers."""

    peer: PeerVersion | None
    """Peer that is measured in turn with linbench."""

    if TYPE_CHECKING:  # a dataclass would take this property for the default of its field `device`

        @property
        def device(self) -> str:
            """Device that it runs on: cpu, or cuda:N."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name in the first column of a table."""

    @property
    @abstractmethod
    def identity_fields(self) -> dict[str, Any]:
        """Fields that tell its results from others of its kind, as JSON values; peer and device aside."""

    @property
    def without_peer(self) -> Self:
        """The same case with no peer beside it."""
        return replace(self, peer=None)  # type: ignore[type-var]  # every kind is a dataclass

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that names the result.

        A peer that is not installed has no version, so that its installation makes another case.
        """
        peer = None if self.peer is None else self.peer._asdict()
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            **self.identity_fields,
            "peer": peer,
            **device_fields(self.device),
        }

    @cached_property
    def id(self) -> str:
        """SHA-256 of the identity in canonical form."""
        return digest(self.identity)

    @property
    def compile_key(self) -> str:
        """Key shared by cases that launch the same kernels, which are compiled once."""
        return self.id


def cpu_independent_id(identity: Mapping[str, Any]) -> str:
    """Return a digest of an identity that is the same for every CPU."""
    return digest({name: value for name, value in identity.items() if name != "processor"})


def device_fields(device: str) -> dict[str, Any]:
    """Return what of a device is in an identity: its class; of a CPU also its name and number of threads."""
    fields: dict[str, Any] = {"device": device_class(device)}
    if device == "cpu":
        fields["processor"] = {"name": cpu_name(), "threads": torch.get_num_threads()}
    return fields

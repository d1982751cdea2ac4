"""A measure of a claim, and the source that its numbers come from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from linbench.bench.layer import LayerCase
from linbench.claims.evidence import Evidence
from linbench.claims.schema import MeasureSettings
from linbench.claims.stored_results import Stored
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings


class Work(NamedTuple):
    """Runs and timings, all of them or those that are missing."""

    cells: tuple[Cell, ...] = ()
    search: SearchSettings | None = None
    """The search for the learning rates of the cells; None: they are given."""
    joining: tuple[Cell, ...] = ()
    """Further cells of models whose learning rate is chosen already, at that rate."""
    timings: tuple[LayerCase, ...] = ()


class Source(ABC):
    """The place where measures look: trained cells, a table that needs no training, or timings of layers.

    A file of claims names its sources. A measure is given its source when the file is read, and from then on
    asks it for everything.
    """

    name: str
    """The name in the file of claims."""

    uses_device: bool = True
    """True if its numbers belong to a kind of device."""

    @classmethod
    @abstractmethod
    def read(cls, name: str, given: Mapping[str, Any], models: Sequence[str], where: str) -> Self:
        """Read a source of a file.

        Args:
            models: the models of all measures that look at it.
            where: the place in the file, with which error messages begin.

        Raises:
            UserError: something in it is wrong.
        """

    @property
    def tasks(self) -> Sequence[str]:
        """The names of the tasks that must be installed."""
        return ()

    @abstractmethod
    def settings(self, model: str) -> dict[str, Any]:
        """Return what decides the numbers of a model, as plain JSON values, for the hash of a claim."""

    @abstractmethod
    def check(self, settings: MeasureSettings, where: str) -> None:
        """Raise UserError if a measure with these settings cannot look at this source."""

    @abstractmethod
    def work(self, measure: "Measure", device: str, seeds: int) -> Work:
        """Return the runs and timings of a measure on a device, without those of rate searches.

        Args:
            device: where they run.
            seeds: how many seeds are wanted, from 0 on.
        """

    @abstractmethod
    def missing(self, measure: "Measure", stored: Stored, device: str, seeds: int) -> Work:
        """Return the runs and timings that are not stored yet, or must be repeated."""

    @abstractmethod
    def evidence(self, measure: "Measure", stored: Stored, kind: str, seeds: int) -> Evidence:
        """Return the value of a measure.

        Args:
            stored: the results to read.
            kind: the kind of device that they were measured on, such as "cpu" or "NVIDIA H200".
            seeds: how many seeds are wanted, from 0 on.
        """

    @abstractmethod
    def result_ids(self, measure: "Measure", stored: Stored, kind: str, seeds: int) -> set[str]:
        """Return the ids of the stored results that `evidence` reads."""


@dataclass(frozen=True)
class Measure:
    """A named number of a claim."""

    claim: str
    """The id of the claim."""
    name: str
    """The name in the rules."""
    settings: MeasureSettings
    source: Source
    alone: bool = True
    """True if all measures of the claim have this source."""

    def __str__(self) -> str:
        return f"{self.claim}.{self.name}"

    @property
    def model(self) -> str:
        """The layer pattern that it is about; empty if nothing is trained or timed."""
        return self.settings.model

    @property
    def unit(self) -> str:
        """The quantity that it measures, as the label of an axis."""
        if self.settings.reaching is None:
            return self.settings.of
        return f"largest {self.settings.along.removeprefix('task.')} with {self.settings.reaching:g}"

    def evidence(self, stored: Stored, kind: str, seeds: int) -> Evidence:
        """Return its value on a kind of device, as `Source.evidence` does."""
        return self.source.evidence(self, stored, kind, seeds)

    def work(self, device: str, seeds: int) -> Work:
        """Return all runs and timings that it needs, as `Source.work` does."""
        return self.source.work(self, device, seeds)

    def missing(self, stored: Stored, device: str, seeds: int) -> Work:
        """Return what is not stored yet, as `Source.missing` does."""
        return self.source.missing(self, stored, device, seeds)

    def result_ids(self, stored: Stored, kind: str, seeds: int) -> set[str]:
        """Return the ids of its results, as `Source.result_ids` does."""
        return self.source.result_ids(self, stored, kind, seeds)

    def describe(self, *, of: bool = True) -> str:
        """Return in words what it looks at.

        Args:
            of: whether to name the quantity, too.
        """
        settings = self.settings
        selected = (settings.where | settings.test).items()
        words = [
            settings.model,
            *(f"{name.partition('.')[2] or name} {value}" for name, value in selected),
            settings.of if of else "",
            f"mean of {settings.across}" if settings.across else "",
            *(f"{name} {value}" for name, value in settings.at.items()),
            self._largest,
            "marked or not" if settings.marked else "",
            "" if self.alone else f"in {self.source.name}",
        ]
        return ", ".join(filter(None, words))

    @property
    def _largest(self) -> str:
        if self.settings.reaching is None:
            return ""
        setting = self.settings.along.removeprefix("task.")
        return f"largest {setting} up to which it is {self.settings.reaching:g}"

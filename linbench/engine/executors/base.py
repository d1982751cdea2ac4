"""The contract of an executor: where groups of cells are trained, and which options say so.

Nothing here loads torch, and neither may the module of an executor when it is imported: `linbench --help`
reads its options.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from linbench.engine.jobs import Job, Message
    from linbench.engine.workers import Outcome

DEFAULT_TIMEOUT = 1800.0
"""Seconds after which a group that reports nothing is ended: half an hour. It was chosen, not measured."""


class Option(NamedTuple):
    """An option of an executor: `--NAME` on the command line, `NAME=` in `linbench.run`."""

    name: str
    metavar: str
    help: str
    parse: Callable[[object], Any]
    """Return the value of a text or Python value that was given. Raises UserError."""
    default: Any = None


class OpenExecutor(Protocol):
    """An executor that is ready for jobs."""

    @property
    def sharing(self) -> int:
        """Groups that share one GPU."""

    @property
    def timeout(self) -> float:
        """Seconds after which a group that reports nothing is ended."""

    @property
    def places(self) -> int:
        """Groups that are held side by side, at most."""

    @property
    def devices(self) -> int:
        """GPUs, or groups side by side on CPUs, that should all be busy."""

    def alone(self) -> "OpenExecutor":
        """Return an executor like this one in which every group has a GPU of its own."""

    def __call__(
        self, jobs: "Iterable[Job | None]", *, tell: "Callable[[Message], None]"
    ) -> "Iterator[tuple[int, Outcome]]":
        """Run jobs, and yield the number and outcome of each when it is over.

        Args:
            jobs: taken one by one, whenever there is a place. None means: no job for now, but there may be
                one after the next outcome.
            tell: gets progress and results while a job runs. Cells without a result when their job is over
                have failed, as its outcome says.
        """


class Executor(ABC):
    """A kind of place where groups of cells are trained, chosen by `--executor NAME`.

    Each subclass stands in a file of its own in this package and is found by a scan.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    """A phrase for the help of `--executor`, such as "worker processes on this host"."""
    options: ClassVar[tuple[Option, ...]] = ()

    @abstractmethod
    def open(self, options: Mapping[str, Any]) -> AbstractContextManager[OpenExecutor]:
        """Return a context in which jobs can be run.

        Args:
            options: the parsed value or default of every option of `options`; also `device`, as `--device`
                was given, and `timeout`, in seconds.

        Raises UserError: options that do not go together, or resources that are not there.
        """

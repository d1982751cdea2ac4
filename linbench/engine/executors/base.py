"""The contract of an executor, and the one that measures in this process."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from linbench.engine.jobs import Job, Message, kind, work
from linbench.engine.surroundings import tampered
from linbench.engine.workers import Outcome


class Executor(Protocol):
    """Who measures: in this process, in several, or on other machines."""

    @property
    def sharing(self) -> int:
        """How many groups have a GPU between them."""

    @property
    def silence(self) -> float:
        """Seconds after which a group that reports nothing is given up."""

    @property
    def places(self) -> int:
        """How many groups run side by side, at most."""

    def alone(self) -> "Executor":
        """One with which none has to share."""

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """As `workers.outcomes`: takes a job whenever it has a place for one, tells what is found of its
        cells as it comes, and gives the job's number when it is over, with a failure for what has no result
        then. None: there is no job now, but may be when one is over."""


class Here:
    """One after another, in this process."""

    sharing, places = 1, 1
    silence = float("inf")

    def alone(self) -> "Here":
        """It is."""
        return self

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """An executor. A job of shipped layers is not done where something has changed torch itself, since
        its numbers would be others."""
        for place, job in enumerate(each for each in jobs if each is not None):
            changed = None if kind(job) else tampered()
            if changed is None:
                work(job, tell)
                yield place, Outcome()
            else:
                yield (
                    place,
                    Outcome(
                        failure=(
                            f"{changed} in this process is not torch's own; run it in a worker process"
                            " (without --workers 0)"
                        ),
                        outside=True,
                    ),
                )


HERE = Here()

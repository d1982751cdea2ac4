"""Training in this process, without workers."""

from collections.abc import Callable, Iterable, Iterator

from linbench.engine.jobs import Job, Message, isolation_key, work
from linbench.engine.surroundings import find_torch_change
from linbench.engine.workers import Outcome


class InProcess:
    """An executor that trains one group after another in this process."""

    sharing, places, devices = 1, 1, 1
    timeout = float("inf")

    def alone(self) -> "InProcess":
        """Return this executor, whose groups never share a GPU."""
        return self

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """Run jobs, as `OpenExecutor` says.

        Shipped layers are not trained if torch itself was changed in this process, because their numbers
        would be others.
        """
        for number, job in enumerate(job for job in jobs if job is not None):
            changed = None if isolation_key(job) else find_torch_change()
            if changed is None:
                work(job, tell)
                yield number, Outcome()
            else:
                yield number, _refused(changed)


def _refused(changed: str) -> Outcome:
    failure = (
        f"{changed} in this process is not torch's own; run it in a worker process (without --workers 0)"
    )
    return Outcome(failure=failure, outside=True)


IN_PROCESS = InProcess()

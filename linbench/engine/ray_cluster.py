"""Groups of cells on the nodes of a Ray cluster, which need not share a folder with this machine: results
come back one by one."""

import logging
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from linbench.common.errors import ClusterLostError, DeviceLostError, UserError
from linbench.common.leaving import hurried, hurry
from linbench.common.numbers import whole
from linbench.engine.jobs import Job, Message, isolation_key, work
from linbench.engine.workers import Outcome, Waiting, one_line
from linbench.experiments.loading import theirs

_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_HEAD_SECONDS = 15.0
"""Without an answer, after which the head of a cluster counts as lost: a fifth of a minute is enough for one
that is busy."""


@contextmanager
def connect(address: str, *, gpus: float, timeout: float) -> Iterator["Cluster"]:
    """The cluster that this machine is part of: `auto`, or HOST:PORT. Each group takes so much of a GPU, or
    with 0 a CPU core.

    Raises UserError: Ray is not installed, there is no such cluster, or no node of it that could run a
    group.
    """
    ended_by = signal.getsignal(signal.SIGTERM)
    try:
        import ray
    except ImportError:
        raise UserError("--executor ray needs Ray: pip install 'linbench[ray]'.") from None
    _require_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise UserError(
            f"there is no Ray cluster at {address}; on one of its nodes give auto or HOST:PORT, or start one:"
            " ray start --head."
        ) from error
    # of half a dozen classes, for versions that differ, a machine that is no node, and so on
    except Exception as error:
        raise UserError(
            f"there is no Ray cluster at {address} that this machine can use: {one_line(error)}."
        ) from error
    try:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, ended_by)  # Ray put its own there
        resource, needed = ("GPU", gpus) if gpus else ("CPU", 1.0)
        if not any(node["Alive"] and node["Resources"].get(resource, 0.0) >= needed for node in ray.nodes()):
            raise UserError(f"no node of the Ray cluster at {address} has {needed:g} {resource} for a group.")
        yield Cluster(gpus, timeout)
    # to take leave of it takes a minute, after which Ray ends the process with words of its own
    except ClusterLostError:
        hurry()
        raise
    finally:
        if not hurried():
            ray.shutdown()


def _require_answer(address: str) -> None:
    """Ray itself would try for minutes. Raises UserError."""
    where = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    host, _, port = where.rpartition(":")
    if where == "auto":
        return
    number = whole(port, 1, 65535)
    if not host or number is None or "/" in host:
        raise UserError(
            f"--address takes auto or HOST:PORT of a cluster that this machine is a node of, not '{where}'."
        )
    try:
        socket.create_connection((host, number), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"nothing answers at {where}, where a Ray cluster was to be: {one_line(error)}."
        ) from error


@dataclass
class _Group:
    """A job on its way: its place among all. deadline: none while it waits for a node."""

    place: int
    deadline: float | None = None


class Cluster(NamedTuple):
    """gpus: how much of one each group takes; 0 for a CPU core. timeout: seconds after which one that says
    nothing is ended."""

    gpus: float
    timeout: float

    @property
    def sharing(self) -> int:
        """How many groups may have a GPU between them."""
        return int(1 / self.gpus) if self.gpus else 1

    def alone(self) -> "Cluster":
        """Each group has a GPU of its own."""
        return self if self.sharing == 1 else self._replace(gpus=1.0)

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """An executor. Which node a group runs on, and when, is left to Ray; it is handed as many as it has
        room for, and one to wait.

        Ray itself repeats nothing: a group whose worker, its GPU or node is lost is over, and lost.
        """
        import ray

        waiting = Waiting(jobs)
        running: dict[Any, _Group] = {}
        head = _Head(ray.get_runtime_context().gcs_address)
        try:
            while True:
                head.require()
                while head.answers and len(running) <= self._room() and (following := waiting.next()):
                    place, job = following
                    running[self._sent(job)] = _Group(place)
                if not running and head.answers:
                    return
                for stream, ready in _looked_at(running) if running else []:
                    group = running[stream]
                    outcome = self._heard(stream, group, tell) if ready else self._overdue(stream, group)
                    if outcome is None:
                        continue
                    del running[stream]
                    yield group.place, outcome
        finally:
            for stream in running if head.answers else ():
                ray.cancel(stream, force=True)

    @property
    def places(self) -> int:
        """How many groups are handed out, one more than there is room for."""
        return self._room() + 1

    def _room(self) -> int:
        """How many groups the cluster can run at a time; it may grow and shrink."""
        import ray

        resources = ray.cluster_resources()
        return int(resources.get("GPU", 0.0) / self.gpus if self.gpus else resources.get("CPU", 0.0))

    def _sent(self, job: Job) -> Any:
        """The stream of what will be said of a job."""
        import ray

        cells = [cell for cell in job.cells if cell.id in job.wanted]
        # what is not shipped may change the process that it runs in, which others would be given, too
        alone = {"max_calls": 1} if isolation_key(job) else {}
        speaking = ray.remote(**alone)(_speaking) if alone else ray.remote(_speaking)
        task = speaking.options(
            num_cpus=1, num_gpus=self.gpus, max_retries=0, num_returns="streaming", name="linbench"
        )
        return task.remote(pickle.dumps(Job(cells, job.wanted, None)), job.wanted, self.gpus)

    def _heard(self, stream: Any, group: _Group, tell: Callable[[Message], None]) -> Outcome | None:
        """The group's outcome if it is over; else what it says is told."""
        import ray
        from ray import exceptions

        try:
            message: Message | None = ray.get(next(stream))
        except StopIteration:
            return Outcome()
        except (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.OutOfMemoryError,
        ) as error:
            ray.cancel(stream, force=True)  # where only something that it said was lost
            # what Ray says of it names machines
            return Outcome(
                failure=f"its worker was lost with {type(error).__name__}", lost=True, outside=True
            )
        except exceptions.RayTaskError as error:  # on a GPU a worker of Ray serves one task alone
            lost = isinstance(error.cause, DeviceLostError)
            return Outcome(failure=theirs(error.cause), lost=lost, outside=lost)
        except exceptions.RayError as error:
            return Outcome(failure=one_line(error))
        group.deadline = time.monotonic() + self.timeout
        if message is not None:
            tell(message)
        return None

    def _overdue(self, stream: Any, group: _Group) -> Outcome | None:
        import ray

        if group.deadline is None or time.monotonic() < group.deadline:
            return None
        ray.cancel(stream, force=True)
        return Outcome(failure=f"said nothing for {self.timeout:.0f} s and was ended", late=True)


class _Head:
    """The head of the cluster, which is asked for an answer from time to time. Ray itself would wait for a
    minute and then end this process."""

    def __init__(self, address: str) -> None:
        self._address, self._last, self.answers = address, time.monotonic(), True

    def require(self) -> None:
        """Look whether it answers. Raises ClusterLostError: it has not for long."""
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_POLL_SECONDS).close()
        except OSError:
            self.answers = False
            time.sleep(_POLL_SECONDS)
        else:
            self._last, self.answers = time.monotonic(), True
        if (silent := time.monotonic() - self._last) > _HEAD_SECONDS:
            raise ClusterLostError(
                f"the head of the Ray cluster at {self._address} has answered nothing for {silent:.0f} s."
                " What is finished is kept; the same command goes on from there when the cluster is back, or"
                " without --executor ray on this host."
            )


def _looked_at(running: dict[Any, _Group]) -> list[tuple[Any, bool]]:
    """Every stream, and whether something has come; waits for the first."""
    import ray

    ray.wait([*running], timeout=_POLL_SECONDS)
    ready, others = ray.wait([*running], num_returns=len(running), timeout=0)
    return [(stream, True) for stream in ready] + [(stream, False) for stream in others]


def _speaking(packed: bytes, names: list[str], gpus: float) -> Iterator[Message | None]:
    """On a node: None when it begins, then all that is told of the job. Plugins come with it, as the source
    that they were made of; nothing of them is written here, so that no name of theirs is a path.

    Raises UserError: the node lacks a plugin, or would measure something else.
    """
    yield None
    with TemporaryDirectory() as folder, chdir(folder):
        job: Job = pickle.loads(packed)
        if [cell.id for cell in job.cells] != names:
            raise UserError(
                "the node has another kind of GPU or another linbench than the machine that planned the run"
            )
        if 0 < gpus < 1:
            # what does not fit is halved, and neighbours keep theirs
            torch.cuda.set_per_process_memory_fraction(gpus)
        said = SimpleQueue[Message | None]()
        with ThreadPoolExecutor(1) as thread:
            working = thread.submit(partial(work, job, said.put))
            working.add_done_callback(lambda _: said.put(None))
            while (message := said.get()) is not None:
                yield message
            working.result()

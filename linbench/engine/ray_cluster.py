"""Groups of cells on the nodes of a Ray cluster.

Nodes need not share a folder with this machine: results come back one by one.
"""

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
from linbench.common.numbers import whole_number
from linbench.common.quick_exit import needs_quick_exit, require_quick_exit
from linbench.engine.jobs import Job, Message, isolation_key, work
from linbench.engine.workers import ArgumentQueue, Outcome, one_line
from linbench.experiments.loading import describe_error

_POLL_SECONDS = 1.0
"""Seconds between two looks at groups and at the head of the cluster."""

_ANSWER_SECONDS = 10.0
"""Seconds that a cluster may take to answer at first."""

_HEAD_SECONDS = 15.0
"""Seconds without an answer after which the head of a cluster counts as lost.

A head that is merely busy should answer sooner; the figure was chosen, not measured.
"""


@contextmanager
def connect(address: str, *, gpus: float, timeout: float) -> Iterator["Cluster"]:
    """Connect to a Ray cluster that this machine is a node of, and yield it as an executor.

    Args:
        address: "auto" or HOST:PORT.
        gpus: share of a GPU that each group takes; 0 for a CPU core.
        timeout: seconds after which a group that reports nothing is ended.

    Raises UserError: Ray is not installed, there is no such cluster, or none of its nodes could run a group.
    """
    handler = signal.getsignal(signal.SIGTERM)
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
    # Ray raises half a dozen classes: for versions that differ, a machine that is no node, and so on
    except Exception as error:
        raise UserError(
            f"there is no Ray cluster at {address} that this machine can use: {one_line(error)}."
        ) from error
    try:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, handler)  # Ray has put its own there
        resource, needed = ("GPU", gpus) if gpus else ("CPU", 1.0)
        if not any(node["Alive"] and node["Resources"].get(resource, 0.0) >= needed for node in ray.nodes()):
            raise UserError(f"no node of the Ray cluster at {address} has {needed:g} {resource} for a group.")
        yield Cluster(gpus, timeout)
    # to disconnect would take a minute, after which Ray ends the process with a message of its own
    except ClusterLostError:
        require_quick_exit()
        raise
    finally:
        if not needs_quick_exit():
            ray.shutdown()


def _require_answer(address: str) -> None:
    """Raise UserError if nothing answers at an address; Ray itself would try for minutes."""
    place = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if place == "auto":
        return
    host, _, port = place.rpartition(":")
    number = whole_number(port, 1, 65535)
    if not host or number is None or "/" in host:
        raise UserError(
            f"--address takes auto or HOST:PORT of a cluster that this machine is a node of, not '{place}'."
        )
    try:
        socket.create_connection((host, number), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {place}: {one_line(error)}.") from error


@dataclass
class _Group:
    """A job that was handed to Ray. deadline: None while it waits for a node."""

    number: int
    deadline: float | None = None


class Cluster(NamedTuple):
    """An executor on a Ray cluster.

    gpus: share of a GPU that each group takes; 0 for a CPU core. timeout: seconds after which a group that
    reports nothing is ended.
    """

    gpus: float
    timeout: float

    @property
    def sharing(self) -> int:
        """Groups that share one GPU, at most."""
        return int(1 / self.gpus) if self.gpus else 1

    def alone(self) -> "Cluster":
        """Return an executor in which each group has a GPU of its own."""
        return self if self.sharing == 1 else self._replace(gpus=1.0)

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """Run jobs, as `OpenExecutor` says.

        Ray decides on which node a group runs, and when. It is handed as many groups as it has room for, and
        one to wait. Ray repeats nothing: a group is lost with its worker, GPU or node.
        """
        import ray

        waiting = ArgumentQueue(jobs)
        running: dict[Any, _Group] = {}
        head = _Head(ray.get_runtime_context().gcs_address)
        try:
            while True:
                head.require()
                while head.answers and len(running) <= self._room() and (following := waiting.next()):
                    number, job = following
                    running[self._send(job)] = _Group(number)
                if not running and head.answers:
                    return
                for stream, ready in _wait_for(running) if running else []:
                    group = running[stream]
                    if ready:
                        outcome = self._receive(stream, group, tell)
                    else:
                        outcome = self._end_overdue(stream, group)
                    if outcome is not None:
                        del running[stream]
                        yield group.number, outcome
        finally:
            for stream in running if head.answers else ():
                ray.cancel(stream, force=True)

    @property
    def places(self) -> int:
        """Groups that are handed out at most: one more than there is room for."""
        return self._room() + 1

    @property
    def devices(self) -> int:
        """GPUs of the cluster, or groups side by side on its CPUs."""
        return max(1, self._room() // self.sharing)

    def _room(self) -> int:
        """Return how many groups the cluster can run at a time; it may grow and shrink."""
        import ray

        resources = ray.cluster_resources()
        return int(resources.get("GPU", 0.0) / self.gpus if self.gpus else resources.get("CPU", 0.0))

    def _send(self, job: Job) -> Any:
        """Hand a job to Ray, and return the stream of its messages."""
        import ray

        cells = [cell for cell in job.cells if cell.id in job.wanted]
        # a plugin may change its process, which would serve other groups after it
        remote = ray.remote(max_calls=1) if isolation_key(job) else ray.remote
        task = remote(_work_on_node).options(
            num_cpus=1, num_gpus=self.gpus, max_retries=0, num_returns="streaming", name="linbench"
        )
        return task.remote(pickle.dumps(Job(cells, job.wanted, None)), job.wanted, self.gpus)

    def _receive(self, stream: Any, group: _Group, tell: Callable[[Message], None]) -> Outcome | None:
        """Return the outcome of a group that is over; else pass on its message."""
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
            ray.cancel(stream, force=True)  # perhaps only a message was lost, and it still runs
            # the message of Ray names machines, so it is not shown
            return Outcome(
                failure=f"its worker was lost with {type(error).__name__}", lost=True, outside=True
            )
        except exceptions.RayTaskError as error:  # on a GPU a worker of Ray serves one task alone
            lost = isinstance(error.cause, DeviceLostError)
            return Outcome(failure=describe_error(error.cause), lost=lost, outside=lost)
        except exceptions.RayError as error:
            return Outcome(failure=one_line(error))
        group.deadline = time.monotonic() + self.timeout
        if message is not None:
            tell(message)
        return None

    def _end_overdue(self, stream: Any, group: _Group) -> Outcome | None:
        """End a group that has been silent for too long; None if it has not."""
        import ray

        if group.deadline is None or time.monotonic() < group.deadline:
            return None
        ray.cancel(stream, force=True)
        return Outcome(failure=f"said nothing for {self.timeout:.0f} s and was ended", late=True)


class _Head:
    """The head of the cluster, which is asked for an answer from time to time.

    Ray itself would wait for a minute and then end this process.
    """

    def __init__(self, address: str) -> None:
        self._address, self._last, self.answers = address, time.monotonic(), True

    def require(self) -> None:
        """Ask for an answer. Raises ClusterLostError: there was none for `_HEAD_SECONDS`."""
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


def _wait_for(running: dict[Any, _Group]) -> list[tuple[Any, bool]]:
    """Wait for a message of any group, and return every stream with whether it has one."""
    import ray

    ray.wait([*running], timeout=_POLL_SECONDS)
    ready, silent = ray.wait([*running], num_returns=len(running), timeout=0)
    return [(stream, True) for stream in ready] + [(stream, False) for stream in silent]


def _work_on_node(packed: bytes, names: list[str], gpus: float) -> Iterator[Message | None]:
    """Do a job on a node: yield None when it begins, then its messages.

    Plugins come with the job, as their source. They are not written to files, so that none of their names
    becomes a path.

    Args:
        packed: the job, pickled.
        names: ids of its cells on the machine that planned the run.
        gpus: share of a GPU that the job may take.

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
            # a group that takes more runs out of memory and is halved, so that its neighbours keep theirs
            torch.cuda.set_per_process_memory_fraction(gpus)
        messages = SimpleQueue[Message | None]()
        with ThreadPoolExecutor(1) as thread:
            working = thread.submit(partial(work, job, messages.put))
            working.add_done_callback(lambda _: messages.put(None))
            while (message := messages.get()) is not None:
                yield message
            working.result()

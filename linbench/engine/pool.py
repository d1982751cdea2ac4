"""Groups of cells side by side on this host: a process for every GPU, or several on a CPU."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch

from linbench.common.errors import UserError
from linbench.engine.executors.base import DEFAULT_TIMEOUT
from linbench.engine.jobs import Job, Message, isolation_key, work
from linbench.engine.workers import Outcome, outcomes


class Pool(NamedTuple):
    """An executor with worker processes on this host.

    environments: environment variables of each worker. threads: CPU threads of each worker. timeout: seconds
    after which a worker that reports nothing is ended.
    """

    environments: tuple[Mapping[str, str], ...]
    threads: int
    timeout: float = DEFAULT_TIMEOUT

    @property
    def sharing(self) -> int:
        """Workers that share one GPU, at most."""
        gpus = [_gpu(environment) for environment in self.environments]
        workers_per_gpu = Counter(gpu for gpu in gpus if gpu is not None)
        return max(workers_per_gpu.values(), default=1)

    @property
    def places(self) -> int:
        """Groups that run side by side."""
        return len(self.environments)

    @property
    def devices(self) -> int:
        """GPUs, or workers on a CPU."""
        gpus = {_gpu(environment) for environment in self.environments}
        return self.places if gpus == {None} else len(gpus)

    def alone(self) -> "Pool":
        """Return a pool with one worker for each GPU."""
        if self.sharing == 1:
            return self
        one_per_gpu = {_gpu(environment): environment for environment in self.environments}
        return self._replace(environments=tuple(one_per_gpu.values()), threads=self.threads * self.sharing)

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """Run jobs, as `OpenExecutor` says.

        A group that is silent for too long is ended with all processes that it started. Code that linbench
        does not ship gets a process of its own, which later serves only groups with the same code.
        """
        return outcomes(
            partial(_work, threads=self.threads),
            jobs,
            workers=self.places,
            seconds=self.timeout,
            tell=tell,
            environments=self.environments,
            kind=isolation_key,
        )


def _gpu(environment: Mapping[str, str]) -> str | None:
    return environment.get("CUDA_VISIBLE_DEVICES")


def make_pool(
    device: str, workers: int | None, *, gpus: int | None = None, timeout: float = DEFAULT_TIMEOUT
) -> Pool:
    """Return a pool of workers.

    A pool of one worker is a process, too, because a group may hang or crash. Workers that share a GPU help:
    one compiles, reads or writes while others compute.

    Args:
        device: "cpu", "cuda", or one GPU such as "cuda:1".
        workers: number of workers; None for one on each GPU or CPU core.
        gpus: number of GPUs to use; None for all.
        timeout: seconds after which a worker that reports nothing is ended.

    Raises UserError: there are fewer GPUs than asked for.
    """
    cores = _usable_cores()
    if device == "cpu":
        count = workers or cores
        threads = _thread_count(max(1, cores // count))
        return Pool(({"OMP_NUM_THREADS": str(threads)},) * count, threads, timeout)
    if device != "cuda":
        return Pool(({},), _thread_count(cores), timeout)
    available = torch.cuda.device_count()
    gpus = gpus or available
    if gpus > available:
        are = "is" if available == 1 else "are"
        raise UserError(f"{gpus} GPUs are asked for; there {are} {available} here.")
    count = workers or gpus
    all_gpus = ",".join(map(str, range(available)))
    names = os.environ.get("CUDA_VISIBLE_DEVICES", all_gpus).split(",")
    environments = tuple({"CUDA_VISIBLE_DEVICES": names[worker % gpus]} for worker in range(count))
    return Pool(environments, _thread_count(max(1, cores // count)), timeout)


def _usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _thread_count(most: int) -> int:
    """Return the threads of a worker: at most as many as the user allows by OMP_NUM_THREADS."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    is_number = re.fullmatch("[1-9][0-9]{0,3}", allowed, re.ASCII)
    return min(most, int(allowed)) if is_number else most


def _work(job: Job, tell: Callable[[Message], None], *, threads: int) -> None:
    """Do a job in a worker, and free the memory that other workers on the GPU may need meanwhile."""
    torch.set_num_threads(threads)
    work(job, tell)
    torch.cuda.empty_cache()

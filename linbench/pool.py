"""Groups of cells side by side: a process for every GPU, or several on a CPU."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch

from linbench.common.errors import UserError
from linbench.jobs import Job, Message, work
from linbench.workers import Outcome, outcomes

SILENCE = 1800.0
"""Seconds after which a group that reports nothing is given up."""


class Pool(NamedTuple):
    """environments: variables for every worker. threads: of each. silence: seconds after which one that says nothing is ended."""

    environments: tuple[Mapping[str, str], ...]
    threads: int
    silence: float = SILENCE

    @property
    def sharing(self) -> int:
        """How many workers have a GPU between them."""
        places = Counter(each["CUDA_VISIBLE_DEVICES"] for each in self.environments if "CUDA_VISIBLE_DEVICES" in each)
        return max(places.values(), default=1)

    def alone(self) -> "Pool":
        """One worker for every GPU."""
        gpus = {each.get("CUDA_VISIBLE_DEVICES"): each for each in self.environments}
        return self if self.sharing == 1 else self._replace(environments=tuple(gpus.values()), threads=self.threads * self.sharing)

    def __call__(self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]) -> Iterator[tuple[int, Outcome]]:
        """An executor. A group that is silent for too long is ended with all that it started."""
        function = partial(_work, threads=self.threads)
        return outcomes(function, jobs, workers=len(self.environments), seconds=self.silence, tell=tell, environments=self.environments)


def pool(device: str, workers: int | None, *, gpus: int | None = None, silence: float = SILENCE) -> Pool:
    """So many workers for cells on `device` ("cpu", "cuda" or one GPU), as many as GPUs or CPU cores if None, on so many `gpus`, all there are if None. One
    alone is a process, too, which may hang or die. Workers that share a GPU compile for it, and read and write, while others compute.

    Raises UserError: more GPUs than there are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if device == "cpu":
        count = workers or cores
        return Pool(({"OMP_NUM_THREADS": str(max(1, cores // count))},) * count, max(1, cores // count), silence)
    if device != "cuda":  # one by its number
        return Pool(({},), cores, silence)
    there = torch.cuda.device_count()
    gpus = gpus or there
    if gpus > there:
        raise UserError(f"{gpus} GPUs are asked for; there {'is' if there == 1 else 'are'} {there} here.")
    count = workers or gpus
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(there)))).split(",")
    return Pool(tuple({"CUDA_VISIBLE_DEVICES": visible[i % gpus]} for i in range(count)), max(1, cores // count), silence)


def _work(job: Job, tell: Callable[[Message], None], *, threads: int) -> None:
    """In a worker, which keeps no memory from others that share its GPU while it waits for the next."""
    torch.set_num_threads(threads)
    work(job, tell)
    torch.cuda.empty_cache()

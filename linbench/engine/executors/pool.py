"""Groups of cells side by side: a process for every GPU, or several on a CPU."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from linbench.common.errors import UserError
from linbench.engine.jobs import Job, Message, kind, work
from linbench.engine.workers import Outcome, outcomes

SILENCE = 1800.0
"""Seconds after which a group that reports nothing is given up."""


class Pool(NamedTuple):
    """environments: variables for every worker. threads: of each. silence: seconds after which one that says
    nothing is ended."""

    environments: tuple[Mapping[str, str], ...]
    threads: int
    silence: float = SILENCE

    @property
    def sharing(self) -> int:
        """How many workers have a GPU between them."""
        places = Counter(
            each["CUDA_VISIBLE_DEVICES"] for each in self.environments if "CUDA_VISIBLE_DEVICES" in each
        )
        return max(places.values(), default=1)

    @property
    def places(self) -> int:
        """How many groups run side by side."""
        return len(self.environments)

    def alone(self) -> "Pool":
        """One worker for every GPU."""
        gpus = {each.get("CUDA_VISIBLE_DEVICES"): each for each in self.environments}
        return (
            self
            if self.sharing == 1
            else self._replace(environments=tuple(gpus.values()), threads=self.threads * self.sharing)
        )

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        """An executor. A group that is silent for too long is ended with all that it started. One with code
        of other people has a process to itself, and to later groups with the same."""
        function = partial(_work, threads=self.threads)
        more: dict[str, Any] = {"environments": self.environments, "kind": kind}
        return outcomes(function, jobs, workers=self.places, seconds=self.silence, tell=tell, **more)


def pool(device: str, workers: int | None, *, gpus: int | None = None, silence: float = SILENCE) -> Pool:
    """So many workers for cells on `device` ("cpu", "cuda" or one GPU), as many as GPUs or CPU cores if None,
    on so many `gpus`, all there are if None. One alone is a process, too, which may hang or die. Workers that
    share a GPU compile for it, and read and write, while others compute.

    Raises UserError: more GPUs than there are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if device == "cpu":
        count = workers or cores
        threads = _threads(max(1, cores // count))
        return Pool(({"OMP_NUM_THREADS": str(threads)},) * count, threads, silence)
    if device != "cuda":  # one by its number
        return Pool(({},), _threads(cores), silence)
    there = torch.cuda.device_count()
    gpus = gpus or there
    if gpus > there:
        raise UserError(f"{gpus} GPUs are asked for; there {'is' if there == 1 else 'are'} {there} here.")
    count = workers or gpus
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(there)))).split(",")
    return Pool(
        tuple({"CUDA_VISIBLE_DEVICES": visible[i % gpus]} for i in range(count)),
        _threads(max(1, cores // count)),
        silence,
    )


def _threads(most: int) -> int:
    """Of a worker: no more than the user allows every process."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(most, int(allowed)) if re.fullmatch("[1-9][0-9]{0,3}", allowed, re.ASCII) else most


def _work(job: Job, tell: Callable[[Message], None], *, threads: int) -> None:
    """In a worker, which keeps no memory from others that share its GPU while it waits for the next."""
    torch.set_num_threads(threads)
    work(job, tell)
    torch.cuda.empty_cache()

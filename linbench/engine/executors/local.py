"""The executor of this host: worker processes, or the process that asks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from linbench.common.errors import UserError
from linbench.common.numbers import parse_whole, whole_number
from linbench.engine.executors.base import Executor, OpenExecutor, Option

if TYPE_CHECKING:
    from linbench.engine.in_process import InProcess
    from linbench.engine.pool import Pool

MOST_WORKERS = 1024
"""Largest number of worker processes, and of GPUs, of one host.

It is far above what hosts have, and low enough that a slip of the finger does not exhaust the machine.
"""


def parse_devices(value: object) -> str | int:
    """Return "all", or the number of GPUs that `--devices` was given. Raises UserError: it is neither."""
    if value == "all":
        return "all"
    count = whole_number(value, 1, MOST_WORKERS)
    if count is None:
        raise UserError(f"--devices takes all, or a number of GPUs, not '{value}'.")
    return count


class Local(Executor):
    """Worker processes of this host, one for each GPU or CPU core; or, with no worker, this process."""

    name = "local"
    help = "worker processes on this host"
    options = (
        Option("devices", "all|N", "Use all GPUs of this host, or this many.", parse_devices),
        Option(
            "workers",
            "N",
            "Number of worker processes; 0 trains in this process. More workers than GPUs share them."
            " Default: one for each GPU or CPU core; for linbench run 0, but 1 for tasks and layers of your"
            " own.",
            parse_whole("--workers", 0, MOST_WORKERS),
        ),
    )

    @contextmanager
    def open(self, options: Mapping[str, Any]) -> Iterator[OpenExecutor]:
        """Yield this process, or a pool of workers. Raises UserError: as `Executor.open`."""
        yield _local(**options)


def _local(device: str, devices: str | int | None, workers: int | None, timeout: float) -> "InProcess | Pool":
    from linbench.engine.in_process import IN_PROCESS
    from linbench.engine.pool import make_pool
    from linbench.experiments.device import pick_device

    if workers == 0:
        if devices is not None:
            raise UserError("--workers 0 uses this process and one device; leave --devices out.")
        return IN_PROCESS
    if devices is not None:
        _check_devices(device)
        count = None if devices == "all" else int(devices)
        return make_pool("cuda", workers, gpus=count, timeout=timeout)
    if device.startswith("cuda:"):
        if workers not in {None, 1}:
            raise UserError(f"--device {device} takes one worker; for several on one GPU use --devices 1.")
        return make_pool(device, 1, timeout=timeout)
    kind = "cpu" if pick_device(device) == "cpu" else "cuda"
    return make_pool(kind, workers, timeout=timeout)


def _check_devices(device: str) -> None:
    import torch

    if device not in {"auto", "cuda"}:
        raise UserError("--devices chooses GPUs itself; leave --device out.")
    if not torch.cuda.device_count():
        raise UserError(
            "--devices needs a GPU, and this host has none; without it each CPU core has a worker."
        )

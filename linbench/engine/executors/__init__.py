"""Who measures: this process, processes of this host, or a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from linbench.common.errors import UserError, unknown
from linbench.common.numbers import whole
from linbench.engine.executors.base import HERE, Executor
from linbench.engine.executors.pool import SILENCE
from linbench.engine.executors.pool import pool as local_pool
from linbench.engine.executors.ray import connected
from linbench.experiments.device import pick_device

EXECUTORS = ("local", "ray")

_MOST_DEVICES = 1024
"""GPUs of one host."""


@contextmanager
def executor(
    name: str = "local",
    *,
    device: str = "auto",
    devices: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
    silence: float = SILENCE,
) -> Iterator[Executor]:
    """As `--executor`, `--device`, `--devices`, `--workers`, `--address`, `--gpus` and `--timeout` say.

    Raises UserError: options that do not go together, more GPUs than there are, or a cluster that cannot be
    used.
    """
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if name == "local":
        if address is not None or gpus is not None:
            raise UserError(
                f"{'--address' if gpus is None else '--gpus'} is of a cluster: it goes with --executor ray."
            )
        yield _of_this_host(device, devices, workers, silence)
        return
    if devices is not None or workers is not None:
        raise UserError(
            f"{'--workers' if devices is None else '--devices'} is of this host; a cluster runs as many"
            " groups as it has room for."
        )
    with connected(address or "auto", gpus=_share(device, gpus), silence=silence) as cluster:
        yield cluster


def _of_this_host(device: str, devices: str | None, workers: int | None, silence: float) -> Executor:
    if workers == 0:
        if devices is not None:
            raise UserError("--workers 0 is this process, with one device; leave --devices out.")
        return HERE
    if devices is None:
        if device.startswith("cuda:"):
            if workers not in {None, 1}:
                raise UserError(
                    f"--device {device} is for one worker; --devices 1 is one GPU for as many as you like."
                )
            return local_pool(device, 1, silence=silence)
        return local_pool("cpu" if pick_device(device) == "cpu" else "cuda", workers, silence=silence)
    count = whole(devices, 1, _MOST_DEVICES)
    if devices != "all" and count is None:
        raise UserError(f"--devices takes all, or a number of GPUs, not '{devices}'.")
    if device not in {"auto", "cuda"}:
        raise UserError("--devices is so many GPUs; leave --device out.")
    if not torch.cuda.device_count():
        raise UserError(
            "--devices is so many GPUs, and there is none here; leave it out, and each CPU core has a worker."
        )
    return local_pool("cuda", workers, gpus=count, silence=silence)


def _share(device: str, gpus: float | None) -> float:
    """Of a GPU, for each group."""
    if device.startswith("cuda:"):
        raise UserError(f"--device {device} is of this host; a cluster chooses GPUs itself: --device cuda.")
    if gpus is not None and not 0 < gpus <= 1:
        raise UserError(f"--gpus takes what a group needs of one GPU, above 0 and at most 1, not {gpus:g}.")
    if pick_device(device) != "cpu":
        return gpus or 1.0
    if gpus is not None:
        raise UserError(
            "--gpus is for cells on a GPU, and these are on the CPU; start the run where there is a GPU of"
            " the cluster's kind."
        )
    return 0.0

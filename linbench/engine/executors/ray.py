"""The executor of a Ray cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from linbench.common.errors import UserError
from linbench.common.numbers import parse_number
from linbench.engine.executors.base import Executor, OpenExecutor, Option


def parse_gpus(value: object) -> float:
    """Return the share of a GPU that `--gpus` was given. Raises UserError: it is none above 0 and up to 1."""
    share = parse_number("--gpus", 0, 1)(value)
    if share == 0:
        raise UserError("--gpus takes a share of one GPU, above 0 and at most 1, not 0.")
    return share


class Ray(Executor):
    """The nodes of a Ray cluster that is running already, this machine among them."""

    name = "ray"
    help = "the nodes of a Ray cluster"
    options = (
        Option("address", "HOST:PORT", "Address of the cluster. Default: auto, the one of this host.", str),
        Option("gpus", "SHARE", "Share of a GPU for each group, such as 0.25. Default: 1.", parse_gpus),
    )

    @contextmanager
    def open(self, options: Mapping[str, Any]) -> Iterator[OpenExecutor]:
        """Yield the cluster, connected. Raises UserError: as `Executor.open`, or Ray is not installed."""
        from linbench.engine.ray_cluster import connect

        gpus = _gpus_per_group(options["device"], options["gpus"])
        with connect(options["address"] or "auto", gpus=gpus, timeout=options["timeout"]) as cluster:
            yield cluster


def _gpus_per_group(device: str, gpus: float | None) -> float:
    """Return the share of a GPU that each group gets; 0 if groups train on the CPU."""
    from linbench.experiments.device import pick_device

    if device.startswith("cuda:"):
        raise UserError(f"a Ray cluster chooses GPUs itself; give --device cuda instead of {device}.")
    if pick_device(device) != "cpu":
        return gpus or 1.0
    if gpus is not None:
        raise UserError(
            "--gpus needs cells on a GPU, and these are on the CPU; start the run on a machine with a GPU of"
            " the cluster's kind."
        )
    return 0.0

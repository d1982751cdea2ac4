"""Devices by the names that users give them."""

import re
from collections.abc import Callable, Iterable

import torch

from linbench.common.errors import UserError, unknown

_OTHER_DEVICES = {"mps", "xpu", "npu", "tpu", "hpu", "xla", "hip", "rocm"}


class Elsewhere(str):
    """A kind of device of another host, such as `NVIDIA H200`. Plans are made for it; nothing runs on it."""


def pick_device(device: str, *, kinds: Callable[[], Iterable[str]] = tuple) -> str:
    """Return the device that a name means; `auto` is the first GPU if there is one.

    Args:
        device: its name. For a kind of device of another host a part of its name will do, such as h200.
        kinds: returns the kinds that are allowed besides the devices of this host. It is called only if this
            host has no such device.

    Raises UserError: there is no such device, or several kinds have this part in their names.
    """
    if isinstance(device, Elsewhere):
        return device
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    device_of = {"auto": gpus[0] if gpus else "cpu", "cpu": "cpu", **{gpu: gpu for gpu in gpus}}
    if gpus:
        device_of["cuda"] = gpus[0]
    if device in device_of:
        return device_of[device]
    others = sorted({*kinds()} - {"cpu"})
    if named := [kind for kind in others if device.casefold() in kind.casefold()]:
        return Elsewhere(_only(device, named))
    if not gpus and re.fullmatch(r"(cuda|gpu)(:.*)?", device):
        reason = (
            "torch finds no GPU here"
            if torch.version.cuda or torch.version.hip
            else "this torch is built without CUDA"
        )
        raise UserError(f"--device {device} is not available: {reason}; use cpu or auto.")
    if re.fullmatch(r"cuda:[0-9]+", device):
        raise UserError(f"there is no {device} here; torch finds {', '.join(gpus)}.")
    if device.partition(":")[0] in _OTHER_DEVICES:
        raise UserError(f"nothing runs on {device} yet; use one of {', '.join(device_of)}.")
    raise unknown("device", device, [*device_of, *others], short={"gpu": "cuda"} if gpus else {})


def _only(device: str, named: list[str]) -> str:
    if len(named) > 1:
        raise UserError(f"--device {device} could be {' or '.join(named)}; name one of them.")
    return named[0]


def device_class(device: str) -> str:
    """Return `cpu` or the name of the GPU. Results on different kinds of device may differ."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device

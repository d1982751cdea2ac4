"""Devices by the names that users give them."""

import re

import torch

from linbench.common.errors import UserError, unknown

_OTHER_DEVICES = {"mps", "xpu", "npu", "tpu", "hpu", "xla", "hip", "rocm"}


def pick_device(device: str) -> str:
    """Return the device that a name means; `auto` is the first GPU if there is one.

    Raises UserError: there is no such device here.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    device_of = {"auto": gpus[0] if gpus else "cpu", "cpu": "cpu", **{gpu: gpu for gpu in gpus}}
    if gpus:
        device_of["cuda"] = gpus[0]
    if device in device_of:
        return device_of[device]
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
    raise unknown("device", device, device_of, short={"gpu": "cuda"} if gpus else {})


def device_class(device: str) -> str:
    """Return `cpu` or the name of the GPU. Results on different kinds of device may differ."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device

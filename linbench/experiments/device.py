"""Devices by the names that users give them, and their classes."""

import re

import torch

from linbench.common.errors import UserError, unknown

_OTHER_DEVICES = {"mps", "xpu", "npu", "tpu", "hpu", "xla", "hip", "rocm"}


def pick_device(device: str) -> str:
    """Return the device that a name means; `auto` is the GPU where there is one. Raises UserError: no such
    device here."""
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    meant = {
        "auto": gpus[0] if gpus else "cpu",
        "cpu": "cpu",
        **{gpu: gpu for gpu in gpus},
        **({"cuda": gpus[0]} if gpus else {}),
    }
    if device in meant:
        return meant[device]
    if not gpus and re.fullmatch(r"(cuda|gpu)(:.*)?", device):
        reason = (
            "torch finds no GPU here"
            if torch.version.cuda or torch.version.hip
            else "this torch is built without CUDA"
        )
        raise UserError(f"--device {device} cannot be had: {reason}; cpu or auto would do.")
    if re.fullmatch(r"cuda:[0-9]+", device):
        raise UserError(f"there is no {device} here; torch finds {', '.join(gpus)}.")
    if device.partition(":")[0] in _OTHER_DEVICES:
        raise UserError(f"linbench does not run on {device}; {', '.join(meant)} would do.")
    raise unknown("device", device, meant, short={"gpu": "cuda"} if gpus else {})


def device_class(device: str) -> str:
    """`cpu`, or the GPU's name: what results may differ by."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device

"""The environment of a measurement: code, packages, device and threads."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from typing_extensions import TypedDict

from linbench.results.schema.cells import Device, Environment

_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
)
"""Environment variables that libraries read once and that may change numbers. They cannot be set for a group
of cells, so they are recorded."""

_LONGEST_VALUE = 40

_PACKAGES = ("linbench", "torch", "triton", "numpy", "pydantic", "pandas")


def environment(device: str) -> Environment:
    """Return the environment of a measurement on a device. Nothing in it names a person or a machine."""
    variables = {name: os.environ[name][:_LONGEST_VALUE] for name in _VARIABLES if name in os.environ}
    source = _source()
    measured_with: Environment = {
        "commit": source["commit"],
        "dirty": source["dirty"],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "device": _device(device),
        "threads": torch.get_num_threads(),
        "deterministic": device == "cpu",
    }
    if variables:
        measured_with["variables"] = variables
    return measured_with


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


class _Source(TypedDict):
    """The commit of the code, and whether there are changes that are not committed."""

    commit: str | None
    dirty: bool | None


@cache
def _source() -> _Source:
    """Return the commit of the checkout that linbench runs from; None in a wheel."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder.parent / ".git").exists():
        return {"commit": None, "dirty": None}
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {
            "commit": commit,
            "dirty": bool(
                _git(folder.parent, "status", "--porcelain", "--", "linbench", "tasks", "models", "kernels")
            ),
        }
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _device(device: str) -> Device:
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        return {"type": "cuda", "name": properties.name, "cuda": torch.version.cuda}
    return {"type": "cpu", "name": cpu_name(), "cores": os.cpu_count()}


@cache
def cpu_name() -> str:
    """Return the name of the CPU, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

"""The functions of NVIDIA's management library (NVML) that tell of a GPU's clocks and processes."""

import ctypes
from functools import cache
from typing import Any

_MAX_PROCESSES = 64
"""Processes of a GPU that are asked for; more than these are not seen."""


class _ProcessInfo(ctypes.Structure):
    """NVML's nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Gpu:
    """A GPU as the driver's library knows it.

    Raises OSError: there is no such library. LookupError: it does not know the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self.library = _nvml()
        self.handle = ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        if self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.handle)):
            raise LookupError(name)

    def clock_reasons(self) -> int:
        """Return why its clocks are lower than they could be, one bit per reason; 0 if it does not say."""
        reasons = ctypes.c_ulonglong()
        failed = self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, ctypes.byref(reasons))
        return 0 if failed else reasons.value

    def process_ids(self) -> list[int]:
        """Return the ids of processes that compute on it; none if it does not say."""
        processes, count = (_ProcessInfo * _MAX_PROCESSES)(), ctypes.c_uint(_MAX_PROCESSES)
        failed = self.library.nvmlDeviceGetComputeRunningProcesses_v3(
            self.handle, ctypes.byref(count), processes
        )
        return [] if failed else [process.pid for process in processes[: count.value]]


@cache
def _nvml() -> Any:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInit_v2():
        raise OSError("NVML does not start")
    return library

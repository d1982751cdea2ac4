"""The parts of NVIDIA's management library that tell which processes a GPU serves."""

import ctypes
from functools import cache
from typing import Any


class _Process(ctypes.Structure):
    """NVML's nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Gpu:
    """A GPU as the driver's management library (NVML) knows it. Raises OSError: there is no such library;
    LookupError: it does not know the GPU."""

    def __init__(self, uuid: str) -> None:
        self.library = _nvml()
        self.handle = ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        if self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.handle)):
            raise LookupError(name)

    def reasons(self) -> int:
        """Why its clocks are lower than they could be, a bit for each; 0 also where it does not say."""
        found = ctypes.c_ulonglong()
        failed = self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, ctypes.byref(found))
        return 0 if failed else found.value

    def pids(self) -> list[int]:
        """Of processes that compute on it, as many as it tells."""
        found, count = (_Process * _MOST_PROCESSES)(), ctypes.c_uint(_MOST_PROCESSES)
        failed = self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), found)
        return [] if failed else [process.pid for process in found[: count.value]]


_MOST_PROCESSES = 64


@cache
def _nvml() -> Any:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInit_v2():
        raise OSError("NVML does not start")
    return library

"""The settings of a process that decide numbers.

They are the same for every group of cells, whatever was set before, and are restored afterwards.
"""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from linbench.common.hashing import stable_key
from linbench.experiments.generators import States, seed_all, set_states, states

T = TypeVar("T")
_KEPT = object()
"""A stand-in for the value that the process has already."""

_BACKENDS = torch.backends
_AUTOCAST_DTYPES = {"cpu": torch.bfloat16, "cuda": torch.float16}
"""The dtype that torch.autocast starts with, by kind of device."""


class _Setting(NamedTuple):
    """A setting: how it is read and written, and its value in a process that has just begun."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    standard: Any


def _attribute(owner: Any, name: str, standard: Any) -> _Setting:
    return _Setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), standard)


def _deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _folder() -> str | None:
    """Return the working directory; None if it was removed."""
    with suppress(OSError):
        return os.getcwd()  # noqa: PTH109 (as text: `chdir` takes it back unchanged)
    return None


def _change_folder(folder: str | None) -> None:
    if folder is not None:
        with suppress(OSError):
            os.chdir(folder)


def _set_variables(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def _set_handlers(handlers: dict[int, Any]) -> None:
    if threading.current_thread() is threading.main_thread():  # no other thread may
        for number, handler in handlers.items():
            if handler is not None:  # None: not set from Python
                signal.signal(number, handler)


def _denormals_are_flushed() -> bool:
    return bool(torch.full((1,), 1e-310, dtype=torch.float64, device="cpu").mul(0.5).eq(0.0).item())


def _flush_denormals(on: bool) -> None:
    torch.set_flush_denormal(on)  # returns whether the processor can


def _set_numpy_errors(treatment: Any) -> None:
    np.seterr(**treatment)


def _autocast(device: str, dtype: torch.dtype) -> dict[str, _Setting]:
    return {
        f"autocast on {device}": _Setting(
            lambda: torch.is_autocast_enabled(device),
            lambda on: torch.set_autocast_enabled(device, on),
            False,
        ),
        f"autocast dtype on {device}": _Setting(
            lambda: torch.get_autocast_dtype(device),
            lambda kind: torch.set_autocast_dtype(device, kind),
            dtype,
        ),
    }


_SETTINGS: dict[str, _Setting] = {
    "default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    "gradients": _Setting(torch.is_grad_enabled, torch._C._set_grad_enabled, True),
    "anomalies": _Setting(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.set_anomaly_enabled(*value),
        (False, True),
    ),
    "deterministic algorithms": _Setting(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _deterministic,
        (False, False),
    ),
    "uninitialised memory": _attribute(torch.utils.deterministic, "fill_uninitialized_memory", True),
    "products of matrices": _Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    ),
    "fp16 sums": _attribute(_BACKENDS.cuda.matmul, "allow_fp16_reduced_precision_reduction", True),
    "bf16 sums": _attribute(_BACKENDS.cuda.matmul, "allow_bf16_reduced_precision_reduction", True),
    "cudnn": _attribute(_BACKENDS.cudnn, "enabled", True),
    "cudnn TF32": _attribute(_BACKENDS.cudnn, "allow_tf32", True),
    "cudnn benchmark": _attribute(_BACKENDS.cudnn, "benchmark", False),
    "cudnn deterministic": _attribute(_BACKENDS.cudnn, "deterministic", False),
    "flash attention": _Setting(_BACKENDS.cuda.flash_sdp_enabled, _BACKENDS.cuda.enable_flash_sdp, True),
    "efficient attention": _Setting(
        _BACKENDS.cuda.mem_efficient_sdp_enabled, _BACKENDS.cuda.enable_mem_efficient_sdp, True
    ),
    "plain attention": _Setting(_BACKENDS.cuda.math_sdp_enabled, _BACKENDS.cuda.enable_math_sdp, True),
    "fused encoder layers": _Setting(
        _BACKENDS.mha.get_fastpath_enabled, _BACKENDS.mha.set_fastpath_enabled, True
    ),
    "denormals": _Setting(_denormals_are_flushed, _flush_denormals, False),
    "threads": _Setting(torch.get_num_threads, torch.set_num_threads, _KEPT),
    "errors of numpy": _Setting(
        np.geterr, _set_numpy_errors, {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
    ),
    "working directory": _Setting(_folder, _change_folder, _KEPT),
    "environment": _Setting(lambda: dict(os.environ), _set_variables, _KEPT),
    "signals": _Setting(_handlers, _set_handlers, _KEPT),
    **_autocast("cpu", _AUTOCAST_DTYPES["cpu"]),
    **_autocast("cuda", _AUTOCAST_DTYPES["cuda"]),
}


def _read() -> dict[str, Any]:
    return {name: setting.read() for name, setting in _SETTINGS.items()}


def _write(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is not _KEPT and _SETTINGS[name].read() != value:
            _SETTINGS[name].write(value)


class Surroundings:
    """The settings and generators of one group.

    The first time they are entered they are as in a process that has just begun; working directory,
    environment, number of threads and handlers of signals are the process's own. Each later time they are as
    the group left them.
    """

    def __init__(self, *seeds: int) -> None:
        """Make the surroundings of cells with these seeds, by which generators are seeded."""
        self._settings = {name: setting.standard for name, setting in _SETTINGS.items()}
        self._seeds = seeds
        self._states: States | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Set them within, and restore what was set before afterwards."""
        settings, generators, device = _read(), states(), torch.get_default_device()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(_without_warning_errors())
            if device.type != "cpu":
                stack.enter_context(torch.device("cpu"))
            _write(self._settings)
            if self._states is None:
                seed_all(stable_key("surroundings", *self._seeds))
            else:
                set_states(self._states)
            try:
                yield
            finally:
                if torch.get_default_device().type != "cpu":  # the group has set it
                    torch.set_default_device(None)
                self._settings, self._states = _read(), states()
                _write(settings)
                set_states(generators)

    def within(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the same items: each is computed in these surroundings, and yielded in the caller's."""
        try:
            while True:
                with self.entered():
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item
        finally:
            with self.entered():
                getattr(items, "close", lambda: None)()


@contextmanager
def _without_warning_errors() -> Iterator[None]:
    """Let no warning be an error within, whatever the process has set; restore filters afterwards."""
    with warnings.catch_warnings():
        filters: Any = warnings.filters
        filters[:] = [each for each in filters if each[0] != "error"]
        yield


_OWN = {
    "builtins", "types", "_thread", "torch", "functools", "contextlib", "typing", "typing_extensions", "abc",
    "collections", "enum", "dataclasses", "warnings", "copyreg",
}  # fmt: skip
"""Packages that define the functions and values in torch's own modules and classes."""


def find_torch_change() -> str | None:
    """Return what somebody else changed of torch in this process, such as `torch.nn.Linear.forward`.

    Looked at is all that layers are made of. None if it is torch's own.
    """
    if _has_global_hooks():
        return "a hook on every module"
    if _has_active_modes():
        return "a mode of torch that is active"
    return next((name for name, value in _torch_members() if not _is_torchs(name, value)), None)


def _has_global_hooks() -> bool:
    from torch.nn.modules import module

    hooks: tuple[Any, ...] = (
        module._global_forward_hooks,
        module._global_forward_pre_hooks,
        module._global_backward_hooks,
        module._global_backward_pre_hooks,
    )
    return any(hooks)


def _has_active_modes() -> bool:
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes: Any = _get_current_function_mode_stack
    changing = [mode for mode in modes() if not isinstance(mode, DeviceContext)]
    return bool(changing) or torch._C._len_torch_dispatch_stack() > 0


def _torch_members() -> Iterator[tuple[str, Any]]:
    """Yield the members of torch's namespaces for layers, and those of every module class, by name."""
    namespaces = {
        "torch": torch,
        "torch.nn": torch.nn,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.init": torch.nn.init,
        "torch.Tensor": torch.Tensor,
    }
    for namespace, owner in namespaces.items():
        for name, value in list(vars(owner).items()):
            yield f"{namespace}.{name}", value
            if isinstance(value, type) and issubclass(value, torch.nn.Module):
                for key, member in list(vars(value).items()):
                    yield f"{namespace}.{name}.{key}", member


def _is_torchs(name: str, value: Any) -> bool:
    """Return whether a member was made or defined by torch, or by a package that it builds on."""
    if isinstance(value, FunctionType):
        # by its globals, because `functools.wraps` gives a patch the name of what it replaces
        home = str(value.__globals__.get("__name__"))
    elif name.endswith("__"):
        return True
    else:
        home = value.__module__ if isinstance(value, type) else type(value).__module__
    return home.partition(".")[0] in _OWN

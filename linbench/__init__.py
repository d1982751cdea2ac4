"""A benchmark of sequence-mixing layers: recall, overwriting, filtering, tracking, state size and speed."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linbench.api import load, run

__all__ = ["__version__", "load", "run"]

try:
    __version__ = version("linbench")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+source"


def __getattr__(name: str) -> Any:
    """Import `run` and `load` when they are first used, because they load torch, which takes seconds."""
    if name in {"run", "load"}:
        from linbench import api

        return getattr(api, name)
    raise AttributeError(f"module 'linbench' has no attribute '{name}'")

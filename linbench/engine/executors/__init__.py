"""Executors: one file for each kind of place where groups of cells can be trained.

To add one, put a file with a subclass of `Executor` here; `--executor`, its help and its errors, and
`linbench.run` find it by a scan.
"""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from inspect import isabstract
from typing import Any, NamedTuple

from linbench.common.errors import UserError, unknown
from linbench.common.scan import submodules
from linbench.engine.executors.base import DEFAULT_TIMEOUT, Executor, OpenExecutor


def find_executors() -> dict[str, type[Executor]]:
    """Return the executors in this package by name, in the order of their files."""
    executors = [
        member
        for module in submodules(sys.modules[__name__])
        for member in vars(module).values()
        if _is_executor(member) and member.__module__ == module.__name__
    ]
    return {executor.name: executor for executor in executors}


def _is_executor(member: object) -> bool:
    return isinstance(member, type) and issubclass(member, Executor) and not isabstract(member)


class ExecutorChoice(NamedTuple):
    """An executor and the values of those of its options that were given."""

    name: str = "local"
    device: str = "auto"
    timeout: float = DEFAULT_TIMEOUT
    options: Mapping[str, Any] = {}

    def open(self) -> AbstractContextManager[OpenExecutor]:
        """Return a context in which jobs can be run. Raises UserError, as `Executor.open` does."""
        executor = find_executors()[self.name]
        defaults = {option.name: option.default for option in executor.options}
        return executor().open({**defaults, **self.options, "device": self.device, "timeout": self.timeout})


DEFAULT_EXECUTOR = ExecutorChoice()
"""The local executor without options."""


def choose_executor(
    name: str = DEFAULT_EXECUTOR.name,
    *,
    device: str = "auto",
    timeout: float = DEFAULT_TIMEOUT,
    options: Mapping[str, object] | None = None,
) -> ExecutorChoice:
    """Return an executor with the options that were given for it.

    Args:
        name: as `--executor`.
        device: as `--device`.
        timeout: as `--timeout`, in seconds.
        options: text or Python values by the names of options; None as a value means not given.

    Raises UserError: an unknown executor or option, an option of another executor, or a value that an option
    does not take.
    """
    executors = find_executors()
    if name not in executors:
        raise unknown("executor", name, executors)
    known = {option.name: option for option in executors[name].options}
    values_given = {key: value for key, value in (options or {}).items() if value is not None}
    for key in values_given:
        if key not in known:
            raise _misplaced(key)
    values = {key: known[key].parse(value) for key, value in values_given.items()}
    return ExecutorChoice(name, device, timeout, values)


def option_owners() -> dict[str, list[str]]:
    """Return the options of all executors by name, each with the names of the executors that have it."""
    owners: dict[str, list[str]] = {}
    for name, executor in find_executors().items():
        for option in executor.options:
            owners.setdefault(option.name, []).append(name)
    return owners


def _misplaced(option: str) -> UserError:
    owners = option_owners()
    if option not in owners:
        return unknown("option of an executor", option, sorted(owners))
    return UserError(f"--{option} needs --executor {' or '.join(owners[option])}.")

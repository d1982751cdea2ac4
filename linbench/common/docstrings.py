"""What a class says of itself."""

import inspect

_FRAMEWORK = {"torch", "builtins", "abc", "typing", "pydantic"}
_BASES = {"linbench.models.base", "linbench.tasks.base"}


def docstring(cls: type) -> str:
    """Return the docstring of a class or of the nearest of its bases that is no framework's; empty where none
    of these has one."""
    for base in cls.__mro__:
        framework = base.__module__ in _BASES or base.__module__.partition(".")[0] in _FRAMEWORK
        if (base is cls or not framework) and (text := vars(base).get("__doc__")):
            return inspect.cleandoc(text)
    return ""

"""Docstrings of classes, for users to read."""

import inspect

_FRAMEWORK = {"torch", "builtins", "abc", "typing", "pydantic"}
_BASES = {"linbench.models.base", "linbench.tasks.base"}


def docstring(cls: type) -> str:
    """Return the docstring of a class or of its nearest base outside frameworks; empty if none has one."""
    for base in cls.__mro__:
        framework = base.__module__ in _BASES or base.__module__.partition(".")[0] in _FRAMEWORK
        text = vars(base).get("__doc__")
        if text and (base is cls or not framework):
            return inspect.cleandoc(text)
    return ""

"""What a model says of itself: its docstring and its settings."""

from typing import Any

from linbench.common.docstrings import docstring


def card(cls: Any) -> str:
    """Of a task or model: its docstring."""
    return docstring(cls) or "It has no docstring."


def model_settings(cls: Any) -> list[tuple[str, str, str, str]]:
    """(name, type, default, description) of each, with published defaults."""
    found: list[tuple[str, str, str, str]] = cls.Settings.describe()
    return found


def controlled(cls: Any) -> list[str]:
    """What the controlled form sets, as `name = value`."""
    return [f"{name} = {value}" for name, value in (cls.controlled or {}).items()]

"""The shipped presets, told apart by whether they run code of their own."""

from linbench.experiments.registry import SHIPPED, registry
from linbench.tasks.base import Task

SHIPPED_TASKS: dict[str, type[Task]] = {
    name: entry.cls for name, entry in registry("task").entries.items() if entry.source == SHIPPED
}


def _first_of_each_path() -> set[tuple[str, str]]:
    first: set[tuple[str, str]] = set()
    for name, cls in SHIPPED_TASKS.items():
        seen = set()
        for which, preset in cls.presets.items():
            values = cls.Settings.parse(preset.task, where="task").model_dump()
            path = str(
                {
                    field: len(value) if isinstance(value, tuple) else value
                    for field, value in values.items()
                    if type(value) not in (int, float)
                }
            )
            if path not in seen:
                first.add((name, which))
            seen.add(path)
    return first


FIRST_OF_EACH_PATH = _first_of_each_path()
"""Task and preset of all but those presets that differ from an earlier one of the task in numbers alone.

Lists of equally many numbers count as such.
"""

LONG_ROW = 512
"""Tokens of a row above which thousands of examples take many seconds."""


def rows_are_long(name: str, which: str) -> bool:
    """Tell whether the rows of a preset have more than `LONG_ROW` tokens."""
    cls = SHIPPED_TASKS[name]
    return cls(cls.Settings.parse(cls.presets[which].task, where="task")).seq_len > LONG_ROW

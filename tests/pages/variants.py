"""The variants that come with linbench, as the README counts and lists them."""

from collections import defaultdict

from linbench.experiments.registry import registry
from linbench.models.base import GENERATIONS

SHIPPED = "linbench"
"""The source of an entry that is no plugin."""


def count() -> list[str]:
    """Return the numbers of variants and of tasks."""
    return [
        str(sum(entry.source == SHIPPED for entry in registry(kind).entries.values()))
        for kind in ("model", "task")
    ]


def table() -> str:
    """Return a table of the variants by group, in the order of `linbench list models`."""
    groups: dict[str, list[str]] = defaultdict(list)
    for entry in sorted(registry("model").entries.values(), key=lambda entry: entry.name):
        if entry.source == SHIPPED:
            groups[entry.cls.generation].append(f"`{entry.name}`")
    order = sorted(groups, key=lambda group: (*GENERATIONS, group).index(group))
    rows = [f"| {group} | {', '.join(groups[group])} |" for group in order]
    return "\n".join(["| group | variants |", "|---|---|", *rows]) + "\n"

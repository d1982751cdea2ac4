"""The variants that come with linbench, as the README counts and lists them."""

from collections import defaultdict

from linbench.experiments.registry import registry
from linbench.models.base import GENERATIONS
from linbench.models.learner import Learner

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


def learners() -> str:
    """Return a table of what every variant declares itself to be as an online learner, by group."""
    entries = [entry for entry in registry("model").entries.values() if entry.source == SHIPPED]
    entries.sort(
        key=lambda entry: ((*GENERATIONS, entry.cls.generation).index(entry.cls.generation), entry.name)
    )
    rows = [f"| `{entry.name}` | {' | '.join(entry.cls.learner)} |" for entry in entries]
    titles = ["variant", *Learner._fields]
    return "\n".join([f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *rows]) + "\n"

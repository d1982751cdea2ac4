"""The variants that come with linbench, as the README counts and lists them."""

from linbench.experiments.registry import Entry, registry, year
from linbench.experiments.system import shipped as systems
from linbench.models.base import GENERATIONS
from linbench.models.learner import Learner
from linbench.site.memory import state

SHIPPED = "linbench"
"""The source of an entry that is no plugin."""


def entries() -> list[Entry]:
    """Return the variants in the order of `linbench list models`."""
    shipped = [entry for entry in registry("model").entries.values() if entry.source == SHIPPED]
    order = [*GENERATIONS, *(entry.cls.generation for entry in shipped)]
    return sorted(shipped, key=lambda entry: (order.index(entry.cls.generation), entry.name))


def count() -> list[str]:
    """Return the numbers of variants, of named systems and of tasks."""
    tasks = [entry for entry in registry("task").entries.values() if entry.source == SHIPPED]
    return [str(len(each)) for each in (entries(), systems(), tasks)]


def table() -> str:
    """Return a table of all variants by group and of all systems: name, year, family, state."""
    rows = [
        f"| `{entry.name}` | {year(entry.cls)} | {entry.cls.generation} | {state(entry.name)} |"
        for entry in entries()
    ]
    rows += [
        f"| `{name}` | {system.year} | system: `{system.pattern}` | {state(name)} |"
        for name, system in systems().items()
    ]
    return "\n".join(["| model | year | family | state |", "|---|---|---|---|", *rows]) + "\n"


def learners() -> str:
    """Return a table of what every variant declares itself to be as an online learner, by group."""
    rows = [f"| `{entry.name}` | {' | '.join(entry.cls.learner)} |" for entry in entries()]
    titles = ["variant", *Learner._fields]
    return "\n".join([f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *rows]) + "\n"

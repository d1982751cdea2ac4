"""The variants that come with linbench, as the README counts and lists them."""

from typing import cast

from linbench.experiments.plan_models import make_model
from linbench.experiments.registry import Entry, registry, year
from linbench.experiments.system import parse_layers
from linbench.experiments.system import shipped as systems
from linbench.models.base import GENERATIONS, Mixer
from linbench.models.learner import Learner
from linbench.tasks.mqar import MQAR

SHIPPED = "linbench"
"""The source of an entry that is no plugin."""


TASK = MQAR(MQAR.Settings())
"""A task, whose ids do not matter to the sizes of layers."""

LENGTHS = (512, 1024, 2048)
"""Lengths that show how a state grows. Memories of chunks have ended one at each."""


def entries() -> list[Entry]:
    """Return the variants in the order of `linbench list models`."""
    shipped = [entry for entry in registry("model").entries.values() if entry.source == SHIPPED]
    order = [*GENERATIONS, *(entry.cls.generation for entry in shipped)]
    return sorted(shipped, key=lambda entry: (order.index(entry.cls.generation), entry.name))


def count() -> list[str]:
    """Return the numbers of variants, of named systems and of tasks."""
    tasks = [entry for entry in registry("task").entries.values() if entry.source == SHIPPED]
    return [str(len(each)) for each in (entries(), systems(), tasks)]


def state(model: str) -> str:
    """Return the floats of one period of a model's layers after T tokens, at width 64 with two heads."""
    spec = make_model(model, "native", {}, {"d_model": 64}, TASK)
    mixers = cast("list[Mixer]", [*spec.sketch(TASK).mixers][: len(parse_layers(model))])
    sizes = [[mixer.state_floats(length) for mixer in mixers] for length in LENGTHS]
    first, second, third = (sum(size.total for size in of_length if size) for of_length in sizes)
    growth, left = divmod(second - first, LENGTHS[0])
    if left or third - second != 2 * (second - first):
        return f"{second:,} at T = {LENGTHS[1]:,}"
    constant = first - growth * LENGTHS[0]
    return " + ".join([*([f"{constant:,}"] if constant else []), *([f"{growth:,} T"] if growth else [])])


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

"""Tables of what each step from linear attention to KDA changes, and of how steps depend on each other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from linbench.common.files import file_name
from linbench.report.data import ReportData
from linbench.report.table import NO_VALUE, Cell, Column, Records, Table
from linbench.report.tables import TableKind, by_training
from linbench.results.comparison import Comparison
from linbench.results.parts import CONFIDENCE, Effect, Factorial, effects, factorial_of

CAPTION = (
    "A step is one more part of KDA: what it changes of the accuracy, as a mean over all combinations of the"
    " other parts. Two steps: how much more one changes where the other is taken. Negative eigenvalues go"
    " beyond the delta rule, and a decay for each channel beyond one for each head. A star: zero is outside"
    f" of the interval. Brackets: the intervals of a task hold together with {CONFIDENCE:.0%} (Welch,"
    " Bonferroni). A seed that diverged counts as chance; a combination of which all seeds diverged has no"
    " score."
)


class TaskEffects(NamedTuple):
    """A task on which parts of KDA were switched on and off, and the effects."""

    comparison: Comparison
    factorial: Factorial
    effects: list[Effect]


class Factorials(NamedTuple):
    """The tasks of one form, way of training and device on which parts were switched.

    Attributes:
        tasks: those on which every combination has run that has run on any.
        unfinished: a sentence for each of the others.
    """

    tasks: list[TaskEffects]
    unfinished: list[str]

    @property
    def names(self) -> dict[str, int]:
        """The names of all effects with the number of their steps: single steps first."""
        steps = {effect.name: len(effect.steps) for one in self.tasks for effect in one.effects}
        return dict(sorted(steps.items(), key=lambda own: own[1]))


def factorials(comparisons: Sequence[Comparison]) -> Factorials:
    """Return the tasks on which effects can be told: of which combinations have several seeds.

    A mean over some of the combinations depends on which of them have run, so a task waits for all.
    """
    found = [(each, own) for each in comparisons if (own := factorial_of(each))]
    every = frozenset(parts for _, own in found for parts in own.combinations)
    told, waiting = list[TaskEffects](), list[str]()
    for each, own in found:
        lacking = own.open | every - own.combinations
        if lacking:
            waiting.append(
                f"{each.title} waits for {len(lacking)} of {len(every)} combinations, whose training has not"
                " ended."
            )
        else:
            told.append(TaskEffects(each, own, effects(own.scores)))
    return Factorials([one for one in told if one.effects], waiting)


def factorials_by_training(data: ReportData) -> dict[str, Factorials]:
    """Return the factorials of each form, way of training and device with a task that can be told."""
    found = {name: factorials(every) for name, every in by_training(data.comparisons).items()}
    return {name: own for name, own in found.items() if own.tasks}


def parts_tables(data: ReportData) -> list[Table]:
    """Return a table for each device and way of training with a factorial, with a column for each task."""
    return [_table(name, found) for name, found in factorials_by_training(data).items()]


TABLES = TableKind("parts of KDA", parts_tables, order=22, printed=False)


def _table(name: str, found: Factorials) -> Table:
    by_name = [{effect.name: effect for effect in one.effects} for one in found.tasks]
    rows = [(Cell(each), *(_cell(own.get(each)) for own in by_name)) for each in found.names]
    return Table(
        f"Steps from linear attention to KDA: {name}",
        (Column("step", numeric=False), *(Column(one.comparison.title) for one in found.tasks)),
        tuple(rows),
        " ".join([CAPTION, *filter(None, map(_left_out, found.tasks)), *found.unfinished]),
        file_name(f"parts of kda {name}"),
        records=[record for one in found.tasks for record in _records(one)],
    )


def _left_out(one: TaskEffects) -> str:
    """Return how many combinations of a task have no score; empty if all have one."""
    diverged, every = len(one.factorial.diverged), len(one.factorial.combinations)
    return f"{one.comparison.title}: {diverged} of {every} diverged." if diverged else ""


def _cell(effect: Effect | None) -> Cell:
    if effect is None:
        return NO_VALUE
    star = " *" if effect.shown else ""
    mean, low, high = (f"{round(each, 3) + 0.0:+.3f}" for each in (effect.mean, effect.low, effect.high))
    return Cell(f"{mean} [{low}, {high}]{star}", effect.mean)


def _records(one: TaskEffects) -> Records:
    return [_record(one.comparison.title, effect) for effect in one.effects]


def _record(task: str, effect: Effect) -> dict[str, Any]:
    values = {name: getattr(effect, name) for name in ("mean", "low", "high", "contrasts")}
    return {"task": task, "effect": effect.name, "steps": len(effect.steps), **values}

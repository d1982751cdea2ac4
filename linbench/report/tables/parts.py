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


def task_effects(comparisons: Sequence[Comparison]) -> list[TaskEffects]:
    """Return the tasks on which effects can be told: of which combinations have several seeds."""
    found = ((each, own) for each in comparisons if (own := factorial_of(each)))
    every = (TaskEffects(each, own, effects(own.scores)) for each, own in found)
    return [one for one in every if one.effects]


def names_of(every: Sequence[TaskEffects]) -> dict[str, int]:
    """Return the names of all effects with the number of their steps: single steps first."""
    steps = {effect.name: len(effect.steps) for one in every for effect in one.effects}
    return dict(sorted(steps.items(), key=lambda own: own[1]))


def effects_by_training(data: ReportData) -> dict[str, list[TaskEffects]]:
    """Return the tasks with effects of each form, way of training and device that has any."""
    found = {name: task_effects(every) for name, every in by_training(data.comparisons).items()}
    return {name: every for name, every in found.items() if every}


def parts_tables(data: ReportData) -> list[Table]:
    """Return a table for each device and way of training with a factorial, with a column for each task."""
    return [_table(name, every) for name, every in effects_by_training(data).items()]


TABLES = TableKind("parts of KDA", parts_tables, order=22, printed=False)


def _table(name: str, every: Sequence[TaskEffects]) -> Table:
    by_name = [{effect.name: effect for effect in one.effects} for one in every]
    rows = [(Cell(each), *(_cell(own.get(each)) for own in by_name)) for each in names_of(every)]
    return Table(
        f"Steps from linear attention to KDA: {name}",
        (Column("step", numeric=False), *(Column(one.comparison.title) for one in every)),
        tuple(rows),
        " ".join([CAPTION, *filter(None, map(_left_out, every))]),
        file_name(f"parts of kda {name}"),
        records=[record for one in every for record in _records(one)],
    )


def _left_out(one: TaskEffects) -> str:
    """Return how many combinations of a task have no score; empty if all have one."""
    diverged, scored = one.factorial.diverged, len(one.factorial.scores)
    return f"{one.comparison.title}: {diverged} of {diverged + scored} diverged." if diverged else ""


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

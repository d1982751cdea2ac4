"""Tables of mean ranks over tasks, with the rank in each task."""

from typing import Any

from linbench.common.files import file_name
from linbench.report.data import ReportData
from linbench.report.table import Cell, Column, Records, Table
from linbench.report.tables import TableKind, by_training
from linbench.results.ranks import CONFIDENCE, FEWEST_TASKS, Ranks, ranks_of
from linbench.results.reliability import FEWEST_MODELS

CAPTION = (
    "Ranks by mean accuracy, 1 for the best; models that are equal share a rank, and cells of one task count"
    f" as one. Here are the models that all cells of {FEWEST_MODELS} models or more have in common, if there"
    f" are {FEWEST_TASKS} tasks. {{agreement}} Two models are told apart if their mean ranks differ by"
    " {difference:.1f} or more (Nemenyi)."
)

AGREE = "Tasks agree on some order (p = {p}, Friedman)."

DISAGREE = "There is no sign that tasks agree on any order (p = {p}, Friedman)."


def ranks_by_training(data: ReportData) -> dict[str, Ranks]:
    """Return the ranks of each form, way of training and device that has enough models and tasks."""
    found = {name: ranks_of(every) for name, every in by_training(data.comparisons).items()}
    return {name: one for name, one in found.items() if one}


def rank_tables(data: ReportData) -> list[Table]:
    """Return a table for each form, way of training and device that has enough models and tasks."""
    return [_table(name, one) for name, one in ranks_by_training(data).items()]


TABLES = TableKind("ranks", rank_tables, order=23, printed=False)


def words(one: Ranks) -> str:
    """Return in words how far tasks agree, and which differences of mean ranks tell models apart."""
    agreement = (AGREE if one.agree else DISAGREE).format(p=f"{one.p:.2g}")
    return CAPTION.format(agreement=agreement, difference=one.difference)


def _table(name: str, one: Ranks) -> Table:
    rows = [
        (Cell(model), Cell(f"{mean:.1f}", mean), *(_rank(own[model]) for own in one.by_task.values()))
        for model, mean in one.mean.items()
    ]
    columns = (Column("model", numeric=False), Column("mean rank"), *map(Column, one.by_task))
    slug = file_name(f"ranks {name}")
    return Table(f"Ranks over tasks: {name}", columns, tuple(rows), words(one), slug, records=_records(one))


def _rank(rank: float) -> Cell:
    return Cell(f"{rank:g}", rank)


def _records(one: Ranks) -> Records:
    shared: dict[str, Any] = {"confidence": CONFIDENCE, "critical_difference": one.difference, "p": one.p}
    return [
        {
            "model": model,
            "mean_rank": mean,
            **{task: own[model] for task, own in one.by_task.items()},
            **shared,
        }
        for model, mean in one.mean.items()
    ]

"""Tables of language models that were asked a task: accuracy, kinds of errors, and bytes of state."""

import math
from collections.abc import Iterable

from linbench.common.files import file_name
from linbench.report.style.wording import commits
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.report.tables import TableKind
from linbench.report.tables.comparison import is_shown
from linbench.results.probes import AskedGroup, asked_groups
from linbench.results.schema.pretrained import PretrainedResult
from linbench.results.scores import above_chance

_HEAD = ("model", "accuracy", "chance", "scaled")

_NOTE = (
    "These are models of transformers that were trained already. Each id of the task is written as one token"
    " of the model, and an answer is the likeliest of the ids that the task can answer with ('choices')."
    " Chance is the accuracy of the best blind guess; a model that guesses among all choices can be below it."
    " Scaled is (accuracy - chance) / (1 - chance), and nll is in nats over the choices. The bytes are what"
    " the model keeps for one sequence after a prompt of so many tokens: recurrent bytes are as many at any"
    " length, cache bytes grow with it."
)


def pretrained_tables(results: Iterable[PretrainedResult]) -> list[Table]:
    """Return a table for each question, with a row for each model."""
    return [_table(group) for group in asked_groups(results)]


TABLES = TableKind("language models", lambda data: pretrained_tables(data.pretrained), order=30)


def _table(group: AskedGroup) -> Table:
    rows = [_row(result) for result in group.results]
    names = list(dict.fromkeys(column for row in rows for column in row))
    return Table(
        group.title,
        tuple(Column(column, numeric=column not in ("model", "precision")) for column in names),
        tuple(tuple(row.get(column, NO_VALUE) for column in names) for row in rows),
        f"{group.about} {_NOTE} Code: {commits(group.results)}.",
        group.slug,
        appendix=_by_slices(group),
    )


def _row(result: PretrainedResult) -> dict[str, Cell]:
    metrics, state = result["metrics"], result["state"]
    accuracy, chance = metrics["accuracy"], result["chance"]
    numbers = {"accuracy": accuracy, "chance": chance, "scaled": above_chance(accuracy, chance)}
    numbers |= {name: value for name, value in metrics.items() if name not in _HEAD and is_shown(name)}
    cells = {"model": Cell(result["label"])}
    cells |= {name: Cell(f"{value:.3f}", value) for name, value in numbers.items()}
    counts = {"parameters": result["parameters"], "choices": result["choices"]}
    if state is not None:
        counts |= {
            "recurrent bytes": state["recurrent"],
            "cache bytes": state["cache"],
            "after tokens": state["tokens"],
        }
    cells |= {name: Cell(f"{count:,}", count) for name, count in counts.items()}
    return cells | {"precision": Cell(result["probe"]["precision"])}


def _by_slices(group: AskedGroup) -> dict[str, Table]:
    """Return a table of accuracy for each slice, in the bins that figures have, by their headings."""
    from linbench.report.style.lines import bin_edges, binned  # late: drawing takes a second to load

    tables = {}
    for name, found in group.slices.items():
        edges = bin_edges(list(found.values()))
        if not edges:
            continue
        lows = [min(min(part["at"]) for part in found.values()), *(edge + 1 for edge in edges)]
        bins = [
            str(low) if low >= high else f"{low} to {high}" for low, high in zip(lows, edges, strict=False)
        ]
        rows = tuple(
            (Cell(result["label"]), *(_share(value) for _, value in binned(found[result["id"]], edges)))
            for result in group.results
            if result["id"] in found
        )
        tables[f"Accuracy by {name}"] = Table(
            f"{group.title}, accuracy by {name}",
            (Column("model", numeric=False), *map(Column, bins)),
            rows,
            slug=f"{group.slug}-{file_name(name)}",
        )
    return tables


def _share(value: float) -> Cell:
    return NO_VALUE if math.isnan(value) else Cell(f"{value:.3f}", value)

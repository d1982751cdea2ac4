"""`linbench list`: the tasks, models, systems or suites that can be used."""

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from linbench.cli.options import JsonOption
from linbench.common import escape
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.experiments.registry import Entry


class ListKind(StrEnum):
    """The kinds of thing that can be listed."""

    tasks = "tasks"
    models = "models"
    systems = "systems"
    suites = "suites"


def list_(
    what: Annotated[ListKind, typer.Argument(metavar="tasks|models|systems|suites", help="What to list.")],
    long: Annotated[
        bool,
        typer.Option("--long", help="On a terminal, print whole lines, kernel families and sources, too."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List tasks by the skill they test, models by generation, or systems and suites by name.

    A system is a published model of several kinds of layers; its name stands wherever a model's does.

    Plugins that cannot be used are named on standard error, with the reason.
    """
    if what is ListKind.suites:
        _list_suites(as_json=as_json)
        return
    if what is ListKind.systems:
        _list_systems(as_json=as_json)
        return
    from linbench.experiments.registry import registry

    registered = registry("task" if what is ListKind.tasks else "model")
    rows = _rows(what, list(registered.entries.values()))
    if as_json:
        print(json.dumps({what.value: rows, "problems": [vars(problem) for problem in registered.problems]}))
        return
    _print(rows, group=_GROUP[what], long=long)
    for problem in registered.problems:
        tell(f"cannot be used: {problem.name} from {problem.source}: {problem.reason}")


def _list_suites(*, as_json: bool) -> None:
    from linbench.experiments.suite import shipped

    about = shipped()
    if as_json:
        print(json.dumps({"suites": [{"name": name, "about": line} for name, line in about.items()]}))
    else:
        for name, line in about.items():
            print(f"{name}\t{line}")


def _list_systems(*, as_json: bool) -> None:
    from linbench.experiments.system import shipped

    rows = [
        {"name": name, "title": one.title, "year": str(one.year), "pattern": one.pattern, "about": one.about}
        for name, one in sorted(shipped().items(), key=lambda item: item[1].year)
    ]
    if as_json:
        print(json.dumps({"systems": rows}))
    else:
        _print(rows, group="year", long=True)


_GROUP = {ListKind.tasks: "skill", ListKind.models: "generation"}
"""The attribute that tasks and models are grouped by, which is also its column."""


def _rows(what: ListKind, entries: "list[Entry]") -> list[dict[str, str]]:
    """Return a row for each task or model, sorted by group, family and name."""
    from linbench.common.docstrings import docstring
    from linbench.experiments.registry import year
    from linbench.models.base import GENERATIONS
    from linbench.tasks.base import Skill

    group = _GROUP[what]
    order = get_args(Skill) if what is ListKind.tasks else GENERATIONS

    def place(row: dict[str, str]) -> tuple[int, str, str]:
        number = order.index(row[group]) if row[group] in order else len(order)
        return number, row.get("family", ""), row["name"]

    rows = []
    for entry in entries:
        row = {"name": entry.name, group: getattr(entry.cls, group, "")}
        if what is ListKind.models:
            row["family"] = _family(entry.cls)
            row["year"] = str(year(entry.cls) or "")
        row["about"] = docstring(entry.cls).partition("\n")[0]
        row["from"] = entry.source
        rows.append(row)
    return sorted(rows, key=place)


def _family(mixer: type) -> str:
    """Return the kernel families of a mixer's recurrence, without those that stand around it."""
    from linbench.kernels.family import families

    known, used = families(), getattr(mixer, "kernel_families", ())
    return ", ".join(name for name in used if name not in known or known[name].shown_with_models)


def _print(rows: list[dict[str, str]], *, group: str, long: bool) -> None:
    """Print rows as a table on a terminal, else as lines with tabs."""
    if sys.stdout.isatty():
        _print_table(rows, group=group, long=long)
        return
    for row in rows:
        print("\t".join(map(escape.one_line, row.values())))


def _print_table(rows: list[dict[str, str]], *, group: str, long: bool) -> None:
    """Print a table whose names are never cut, since they are there to be copied."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    columns = [column for column in (rows[0] if rows else ()) if long or column in {"name", group, "about"}]
    for column in columns:
        uncut = column == "name" or (column == group and not long)
        cut = column == "about" and not long
        table.add_column(
            column,
            no_wrap=cut or uncut,
            min_width=max(len(row[column]) for row in rows) if uncut else None,
            overflow="ellipsis" if cut else "fold",
        )
    for previous, row in zip([None, *rows], rows, strict=False):
        if previous is not None and previous[group] != row[group]:
            table.add_section()
        # rich would read brackets in a docstring as markup
        table.add_row(*(Text(escape.one_line(row[column])) for column in columns))
    Console().print(table)

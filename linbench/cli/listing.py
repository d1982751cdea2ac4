"""`linbench list`: what there is."""

import json
import sys
from enum import StrEnum
from typing import Annotated, get_args

import typer

from linbench.cli.options import JsonOption
from linbench.common import escape
from linbench.common.streams import tell


class What(StrEnum):
    """What can be listed."""

    tasks = "tasks"
    models = "models"
    suites = "suites"


def listing(
    what: Annotated[What, typer.Argument(metavar="tasks|models|suites", help="What to list.")],
    long: Annotated[
        bool,
        typer.Option(
            "--long", help="On a terminal: whole lines, kernel families and where each comes from, too."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List tasks by what they ask of a memory, models by generation, suites by name; names that cannot be
    used are told apart."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from linbench.common.docstrings import docstring
    from linbench.experiments.registry import registry
    from linbench.models.base import GENERATIONS
    from linbench.tasks.base import Question

    if what is What.suites:
        from linbench.experiments.suite import shipped

        about = shipped()
        print(
            json.dumps({"suites": [{"name": name, "about": line} for name, line in about.items()]})
            if as_json
            else "\n".join(f"{n}\t{a}" for n, a in about.items())
        )
        return
    found = registry("task" if what is What.tasks else "model")
    group, order = ("asks", get_args(Question)) if what is What.tasks else ("generation", GENERATIONS)
    rows = [
        {
            "name": e.name,
            group: getattr(e.cls, group, ""),
            **({} if what is What.tasks else {"family": _family(e.cls)}),
            "about": docstring(e.cls).partition("\n")[0],
            "from": e.source,
        }
        for e in sorted(found.entries.values(), key=lambda e: e.name)
    ]
    rows.sort(
        key=lambda row: (
            order.index(row[group]) if row[group] in order else len(order),
            row.get("family", ""),
        )
    )
    if as_json:
        print(json.dumps({what.value: rows, "problems": [vars(problem) for problem in found.problems]}))
        return
    if sys.stdout.isatty():
        table = Table(box=box.SIMPLE_HEAD)
        columns = [
            column for column in (rows[0] if rows else ()) if long or column in {"name", group, "about"}
        ]
        for column in columns:
            # names are there to be copied: whatever else wraps or is cut, they stay whole
            whole = (
                max(len(row[column]) for row in rows)
                if column == "name" or (column == group and not long)
                else None
            )
            cut = column == "about" and not long
            table.add_column(
                column,
                no_wrap=cut or whole is not None,
                min_width=whole,
                overflow="ellipsis" if cut else "fold",
            )
        for before, row in zip([None, *rows], rows, strict=False):
            if before is not None and before[group] != row[group]:
                table.add_section()
            # plain: a first line may hold brackets
            table.add_row(*(Text(escape.one_line(row[column])) for column in columns))
        Console().print(table)
    else:
        for row in rows:
            print("\t".join(map(escape.one_line, row.values())))
    for problem in found.problems:
        tell(f"cannot be used: {problem.name} from {problem.source}: {problem.reason}")


def _family(mixer: type) -> str:
    """Return the kernel families of a mixer's recurrence, without those that stand around it."""
    from linbench.kernels.family import families

    known, used = families(), getattr(mixer, "families", ())
    return ", ".join(name for name in used if name not in known or known[name].shown_with_models)

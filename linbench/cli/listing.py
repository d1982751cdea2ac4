"""`linbench list`: what there is."""

import json
import sys
from enum import StrEnum
from typing import Annotated, get_args

import typer

from linbench.cli.options import JsonOption


class What(StrEnum):
    """What can be listed."""

    tasks = "tasks"
    models = "models"
    suites = "suites"


def listing(what: Annotated[What, typer.Argument(metavar="tasks|models|suites", help="What to list.")], as_json: JsonOption = False) -> None:
    """List tasks by what they ask of a memory, models or suites by name, with where they come from; names that cannot be used are told apart."""
    import inspect

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from linbench.registry import registry
    from linbench.tasks.base import Question

    if what is What.suites:
        from linbench.suite import shipped

        about = shipped()
        print(
            json.dumps({"suites": [{"name": name, "about": line} for name, line in about.items()]})
            if as_json
            else "\n".join(f"{n}\t{a}" for n, a in about.items())
        )
        return
    found = registry("task" if what is What.tasks else "model")
    group = "asks" if what is What.tasks else "generation"
    order = list(get_args(Question))
    rows = [
        {"name": e.name, group: getattr(e.cls, group, ""), "about": (inspect.getdoc(e.cls) or "").partition("\n")[0], "from": e.source}
        for e in sorted(found.entries.values(), key=lambda e: e.name)
    ]
    rows.sort(key=lambda row: order.index(row["asks"]) if row.get("asks") in order else len(order))
    if as_json:
        print(json.dumps({what.value: rows, "problems": [vars(problem) for problem in found.problems]}))
        return
    if sys.stdout.isatty():
        table = Table("name", group, "about", "from", box=box.SIMPLE_HEAD)
        for before, row in zip([None, *rows], rows, strict=False):
            if what is What.tasks and before is not None and before[group] != row[group]:
                table.add_section()
            table.add_row(*(Text(row[name]) for name in ("name", group, "about", "from")))  # plain: a first line may hold brackets
        Console().print(table)
    else:
        for row in rows:
            print("\t".join(row[name] for name in ("name", group, "about", "from") if name != "generation"))
    for problem in found.problems:
        print(f"cannot be used: {problem.name} from {problem.source}: {problem.reason}", file=sys.stderr)

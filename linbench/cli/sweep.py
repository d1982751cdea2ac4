"""`linbench sweep`: a suite of cells."""

import json
import sys
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    MOST,
    AllowOption,
    DeviceOption,
    FormOption,
    JsonOption,
    ResultsOption,
    SeedsOption,
    StackOption,
    tell_failed,
    tell_left_out,
    tell_set_aside,
    whole_option,
)
from linbench.common import escape
from linbench.common.errors import UserError, unknown
from linbench.common.numbers import whole
from linbench.common.text import counted, duration
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.experiments.cell import Cell
    from linbench.experiments.learning_rates import SearchSettings
    from linbench.results.record import Result
    from linbench.results.store import Store

EXAMPLES = """
Examples:

  linbench sweep quick --dry-run

  linbench sweep quick --only deltanet --only attention

  linbench sweep quick --model gated_deltanet,./mine.py:Mine --seeds 0-5

  linbench sweep mine.yaml --shard 1/4 --retry failed

  linbench sweep mine.yaml --devices all

  linbench sweep mine.yaml --executor ray --address auto --gpus 0.25
"""


@with_executor_options
def sweep(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            autocompletion=completion.suites,
            help="A shipped suite (linbench list suites) or a YAML file.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, what is missing and what it may cost.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only tasks or models of this name; * stands for anything."),
    ] = None,
    limit: Annotated[
        int | None, whole_option("--limit", 1, MOST, help="At most so many cells that are not finished.")
    ] = None,
    shard: Annotated[str, typer.Option(metavar="I/N", help="The I-th of N parts, for N machines.")] = "1/1",
    retry: Annotated[
        str | None, typer.Option(metavar="failed", help="failed: try again what did not end well.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODELS",
            autocompletion=completion.models,
            help="Models in place of the suite's, separated by commas.",
        ),
    ] = None,
    seeds: SeedsOption = None,
    form: FormOption = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16, whatever the suite says.")] = None,
    stack: StackOption = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    device: DeviceOption = "auto",
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Run a suite: tasks x models x settings x seeds. Finished cells are not repeated; tables and figures are
    there at any moment."""
    from linbench.engine.lr_search import ahead
    from linbench.experiments.pattern import split_models
    from linbench.experiments.suite import expand, load, narrowed
    from linbench.results.reference import store_at

    if retry not in {None, "failed"}:
        raise UserError(f"--retry takes failed, not '{retry}'.")
    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        chosen = narrowed(
            load(suite),
            models=[name for text in model or () for name in split_models(text)],
            seeds=seeds,
            form=form,
        )
        found, missing = expand(chosen, precision=precision, device=device)
        tell_left_out(missing)
        store = store_at(results)
        cells = _chosen(found, only=only or [], shard=shard)
        kept = _settled(found, store, chosen.search, retry=retry is not None)
        if limit is not None:
            _, left = ahead(
                [cell for cell in cells if cell.id not in kept],
                store.get,
                chosen.search,
                retry=retry is not None,
            )
            cells = [cell for cell in cells if cell.id in left][:limit]
            if not cells:
                raise UserError("every cell is finished; without --limit the tables are shown.")
        if not dry_run:
            how = {
                "search": chosen.search,
                "stack": stack,
                "retry": retry is not None,
                "executor": executor,
                "allow": allow or (),
            }
            done = _done(cells, kept, store, **how)
    if dry_run:
        _tell_plan(cells, kept, store, stack, search=chosen.search, retry=retry is not None, as_json=as_json)
        tell_set_aside(store.set_aside)
        return
    # not before: what makes tables takes a second to load
    from linbench.report.tables.comparison import markdown
    from linbench.results.comparison import comparisons

    tell_set_aside(store.set_aside)
    print(
        json.dumps(done)
        if as_json
        else "\n".join(
            markdown(comparison) for comparison in comparisons(done, order=[c.model.label for c in cells])
        )
    )
    tell_failed(done)


sweep.__doc__ = (sweep.__doc__ or "") + EXAMPLES


def _chosen(cells: "list[Cell]", *, only: list[str], shard: str) -> "list[Cell]":
    """Those that are asked for. Raises UserError: a shard that is none, what the suite does not have, or
    nothing left."""
    from linbench.engine.groups import groups

    part, parts = (whole(number, 1, MOST) for number in (shard.partition("/")[0], shard.partition("/")[2]))
    if part is None or parts is None or part > parts:
        raise UserError(f"--shard takes I/N, such as 1/4 for the first of four, not '{shard}'.")
    asked = [cell for cell in cells if not only or any(_is(cell, pattern) for pattern in only)]
    names = sorted({name for cell in cells for name in (cell.task_entry.name, cell.model.label)})
    for pattern in only:
        if cells and not any(_is(cell, pattern) for cell in cells):
            raise unknown("task or model of the suite", pattern, names)
    mine = {cell.id for group in groups(asked, largest=len(asked) or 1)[part - 1 :: parts] for cell in group}
    chosen = [cell for cell in asked if cell.id in mine]
    if not chosen:
        raise UserError(
            "nothing of the suite is left to run; it has"
            f" {', '.join(names) or 'no task or model that is installed'}."
        )
    return chosen


def _settled(
    cells: "list[Cell]", store: "Store", search: "SearchSettings | None", *, retry: bool
) -> "dict[str, Result]":
    """What the store has of the suite's models at learning rates that a former rule chose, where that is all
    of a model: it is not run again, and told."""
    from linbench.engine.former import says, settled
    from linbench.engine.runner import stands

    def found(cell: "Cell") -> "Result | None":
        result = store.get(cell.id)
        return result if stands(result, again=False, retry=retry) else None

    kept = settled(cells, found, search)
    for words in says(list(kept.values())):
        print(
            f"linbench: {counted(len(kept), 'stored result')}: {words}; they stand as they are.",
            file=sys.stderr,
        )
    return kept


def _done(cells: "list[Cell]", kept: "dict[str, Result]", store: "Store", **how: Any) -> "list[Result]":
    """The results of the cells: those that are kept as they are, and all others by what is run."""
    from linbench.cli.running import carry_out

    waiting = list({cell.id: cell for cell in cells if cell.id not in kept}.values())
    results = (
        dict(zip((cell.id for cell in waiting), carry_out(waiting, store, **how), strict=True))
        if waiting
        else {}
    )
    return [(kept | results)[cell.id] for cell in cells]


def _is(cell: "Cell", pattern: str) -> bool:
    from linbench.experiments.pattern import split_task

    names = (cell.model.label, cell.task_entry.name, f"{cell.task_entry.name}/{cell.preset}")
    # as a task is entered, whose folder may have a bracket in its name
    asked = "/".join(filter(None, split_task(pattern))).removeprefix("./")
    return asked in {name.removeprefix("./") for name in names} or any(
        fnmatchcase(name, pattern) for name in names
    )


def _tell_plan(
    cells: "list[Cell]",
    kept: "dict[str, Result]",
    store: "Store",
    stack: int | None,
    *,
    search: "SearchSettings | None",
    retry: bool,
    as_json: bool,
) -> None:
    """What would run, group by group; first what learning rates are chosen by. Raises UserError: a seed is
    for that, and to be reported, too."""
    from linbench.engine.cost import pace, seconds
    from linbench.engine.groups import groups
    from linbench.engine.lr_search import ahead
    from linbench.experiments.labels import named, varied

    known: list[Result] = store.all() if store.folder.is_dir() else []
    tuning, missing = ahead(
        [cell for cell in cells if cell.id not in kept],
        {result["id"]: result for result in known}.get,
        search,
        retry=retry,
    )
    rows: list[dict[str, Any]] = []
    names, paced = varied(cells, but={"protocol.lr"} if search else ()), pace(known, cells[0].device)
    for what, these in (("search, ", tuning), ("", cells)):
        for group in groups(these, largest=stack):
            left = [cell for cell in group if cell.id in missing]
            rows.append(
                {
                    "group": what + named(group, names),
                    "cells": len(group),
                    "left": len(left),
                    "seconds": seconds(left, paced) if left else 0.0,
                }
            )
    if as_json:
        print(
            json.dumps({"groups": rows, "cells": [cell.id for cell in cells], "searched": search is not None})
        )
        return
    for row in rows:
        cost = "no estimate" if row["seconds"] is None else f"about {duration(row['seconds'])}"
        name = escape.one_line(row["group"])
        print(
            f"{name}: {counted(row['cells'], 'cell')}, {row['left']} left, {cost}"
            if row["left"]
            else f"{name}: finished"
        )
    total = sum(row["left"] for row in rows)
    costs = [row["seconds"] for row in rows if row["seconds"] is not None]
    unknown = " not counting groups without an estimate" if len(costs) < len(rows) else ""
    estimate = (
        f"about {duration(sum(costs))} by what finished cells took here{unknown}"
        if costs
        else "no finished cell on this kind of device to judge the cost by"
    )
    print(
        f"{counted(len(tuning) + len(cells), 'cell')} in {counted(len(rows), 'group')},"
        f" {f'{total} left: {estimate}' if total else 'all finished'}."
    )
    if search and search.extensions and any(cell.id in missing for cell in tuning):
        print(
            "Where the best learning rate turns out to be on the edge, the search goes on, for at most"
            f" {counted(search.extensions, 'rate')} more."
        )

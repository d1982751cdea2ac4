"""`linbench reproduce`: tables that papers have published, beside our runs of the same cells."""

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    AllowOption,
    JsonOption,
    PlannedDeviceOption,
    exit_if_failed,
    warn_ignored_files,
)
from linbench.cli.pages import command_line, save_page
from linbench.cli.result_folders import DEFAULT, FoldersOption, require_folders, store_for_new, stores_in
from linbench.common.errors import UserError
from linbench.common.files import check_writable
from linbench.common.text import format_duration
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.experiments.cell import Cell
    from linbench.report.table import Table
    from linbench.reproduction.plan import Plan
    from linbench.reproduction.ran import Ran
    from linbench.reproduction.stored import Stored
    from linbench.reproduction.table import Reproduction
    from linbench.results.schema.cells import CellResult

EXAMPLES = """
Examples:

  linbench reproduce

  linbench reproduce R9

  linbench reproduce R9 --dry-run

  linbench reproduce R9 --run --devices all --results results/mine

  linbench reproduce R2 --row "mamba3*" --column parity --run

  linbench reproduce R1 --switches

  linbench reproduce --save docs/reproduction.md
"""


@with_executor_options
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            autocompletion=completion.reproductions,
            help="Published tables to show, such as R9 (default: a line for each).",
        ),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only rows of this name, of one table; * matches anything."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only columns of this name, of one table; * matches anything."),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run what is missing; results go to the first --results.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and what it may cost, and run nothing.")
    ] = False,
    switches: Annotated[
        bool,
        typer.Option(
            "--switches",
            help="Show, run or plan the changes of the set-up that may be why ours differs, one at a time.",
        ),
    ] = False,
    device: PlannedDeviceOption = "auto",
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    results: FoldersOption = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all values as a page of Markdown, with a figure."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show tables that papers have published, and our runs of the same cells beside them.

    A printed number counts as within, outside, or not comparable, with a reason. Our number is
    chosen among settings and seeds as the paper chose.
    """
    from linbench.experiments.device import pick_device
    from linbench.reproduction.ran import ran
    from linbench.reproduction.stored import Stored
    from linbench.reproduction.table import find, reproductions

    if save:
        check_writable(save, "cannot write", "--save")
    if dry_run and (run or save):
        raise UserError(f"{'--run' if run else '--save'} and --dry-run exclude each other.")
    require_folders(results or (), new=run)
    folders = results or DEFAULT
    trained: list[CellResult] = []
    with redirect_stdout(sys.stderr):  # plugins may print; standard output is ours
        chosen = list(dict.fromkeys(map(find, names or []))) or list(reproductions().values())
        if row or column:
            chosen = [_only(chosen).part(row or [], column or [])]
        if run:
            how = {"executor": executor, "allow": allow or ()}
            trained = _run(chosen, folders, pick_device(device), switches, how)
        stored = Stored(stores_in(folders))
        place = pick_device(device, kinds=lambda: stored.kinds)
        if dry_run:
            plans = _plans(chosen, stored, place, switches=switches)
        else:
            found = [ran(one, stored, place) for one in chosen]
            tables = _tables(chosen, found, switches=switches, in_full=bool(names) or as_json)
    if save:
        given = {"--row": row, "--column": column, "--results": results}
        command = command_line("linbench reproduce", names, given, save)
        _save(save, found, command)
    if dry_run:
        _print_plans(plans, as_json=as_json)
    elif as_json:
        print(json.dumps([record for table in tables for record in table.to_records()]))
    elif not save:
        _print_tables(tables)
    for store in stored.stores:
        warn_ignored_files(store.set_aside)
    exit_if_failed(trained)


reproduce.__doc__ = (reproduce.__doc__ or "") + EXAMPLES


def _only(chosen: "list[Reproduction]") -> "Reproduction":
    """Return the one table that is chosen. Raises UserError: there are several."""
    if len(chosen) > 1:
        raise UserError("--row and --column take a part of one table; name one, such as R9.")
    return chosen[0]


def _run(
    chosen: "list[Reproduction]", folders: "Sequence[Path]", place: str, switches: bool, how: dict[str, Any]
) -> "list[CellResult]":
    """Run what no folder has, and store it in the first: what chooses among settings, and then the rest."""
    from linbench.cli.running import run_with_progress
    from linbench.reproduction.plan import choosing_cells, missing, needed_cells, planned
    from linbench.reproduction.stored import Stored

    store = store_for_new(folders)

    def train(cells: "list[Cell]") -> "list[CellResult]":
        return run_with_progress(cells, store, search=None, stack=None, summarize=True, **how)

    every = planned(chosen, place, switches=switches)
    stored = Stored(stores_in(folders))
    first = train(missing(choosing_cells(every), stored, place))
    stored = Stored(stores_in(folders))  # with what the first have measured
    return first + train(missing(needed_cells(every, stored, place), stored, place))


def _tables(
    chosen: "list[Reproduction]", found: "list[list[Ran]]", *, switches: bool, in_full: bool
) -> "list[Table]":
    """Return what is shown of published tables.

    Args:
        chosen: the tables.
        found: what became of each, on every kind of device.
        switches: whether the changes of the set-up are shown, and not the values.
        in_full: whether each value is shown, and not a line for each table.
    """
    from linbench.reproduction.page import ledger, of_switches, overview
    from linbench.reproduction.ran import most

    every = [each for kinds in found for each in kinds]
    if switches and not any(one.table.switches for one in chosen):
        raise UserError(f"no switch is written for {', '.join(one.id for one in chosen)}.")
    if switches:
        return [of_switches(each.one, each.switches, each.kind) for each in every if each.switches]
    if in_full:
        return [ledger(each.one, each.outcomes, each.kind) for each in every]
    return [overview({each.one: each.outcomes for each in map(most, found)})]


def _save(path: Path, found: "list[list[Ran]]", command: str) -> None:
    from linbench.reproduction.document import document
    from linbench.reproduction.figure import drawing
    from linbench.reproduction.ran import most

    shown = [most(kinds) for kinds in found]
    save_page(path, document(shown, command=command, beside=path), [drawing(shown)])


def _print_tables(tables: "list[Table]") -> None:
    for table in tables:
        print(f"\n{table.title}\n")
        table.show()
        print(f"\n{table.caption}")


def _plans(chosen: "list[Reproduction]", stored: "Stored", place: str, *, switches: bool) -> "list[Plan]":
    from linbench.engine.cost import fit_cost_model
    from linbench.reproduction.plan import plan

    cost = fit_cost_model((result for store in stored.stores for result in store.all()), place)
    return [plan(one, stored, cost, place, switches=switches) for one in chosen]


def _print_plans(plans: "list[Plan]", *, as_json: bool) -> None:
    """Print for every table its runs, those that are left, their tokens, and what they may take."""
    from linbench.report.terminal import show

    if as_json:
        print(json.dumps([each._asdict() for each in plans]))
        return
    rows = [
        [
            each.table,
            f"{each.runs:,}",
            f"{each.left:,}",
            f"{each.tokens / 1e6:,.0f}",
            "no estimate" if each.seconds is None else format_duration(each.seconds),
        ]
        for each in plans
    ]
    show(["table", "runs", "left", "M tokens", "may take"], rows, left=["table"])

"""`linbench reproduce`: tables that papers have published, beside our runs of the same cells."""

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import AllowOption, DeviceOption, JsonOption, exit_if_failed, warn_ignored_files
from linbench.cli.result_folders import DEFAULT, FoldersOption, require_folders, store_for_new, stores_in
from linbench.common.errors import UserError
from linbench.common.text import format_duration
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.experiments.cell import Cell
    from linbench.report.table import Table
    from linbench.reproduction.outcome import Outcome
    from linbench.reproduction.plan import Plan
    from linbench.reproduction.stored import Stored
    from linbench.reproduction.table import Reproduction
    from linbench.results.schema.cells import CellResult

EXAMPLES = """
Examples:

  linbench reproduce

  linbench reproduce R9

  linbench reproduce R9 --dry-run

  linbench reproduce R9 --run --devices all --results results/mine

  linbench reproduce R1 --switches
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
    device: DeviceOption = "auto",
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    results: FoldersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show tables that papers have published, and our runs of the same cells beside them.

    A printed number counts as within, outside, or not comparable, with a reason. Ours is chosen among
    settings and seeds as the paper chose.
    """
    from linbench.experiments.device import pick_device
    from linbench.reproduction.stored import Stored
    from linbench.reproduction.table import find, reproductions

    if run and dry_run:
        raise UserError("--run and --dry-run exclude each other.")
    require_folders(results or (), new=run)
    folders = results or DEFAULT
    trained: list[CellResult] = []
    with redirect_stdout(sys.stderr):  # plugins may print; standard output is ours
        chosen = list(dict.fromkeys(map(find, names or []))) or list(reproductions().values())
        place = pick_device(device)
        if run:
            how = {"executor": executor, "allow": allow or ()}
            trained = _run(chosen, folders, place, switches, how)
        stored = Stored(stores_in(folders))
        if dry_run:
            plans = _plans(chosen, stored, place, switches=switches)
        else:
            tables = _tables(chosen, stored, place, switches=switches, in_full=bool(names) or as_json)
    if dry_run:
        _print_plans(plans, as_json=as_json)
    elif as_json:
        print(json.dumps([record for table in tables for record in table.to_records()]))
    else:
        _print_tables(tables)
    for store in stored.stores:
        warn_ignored_files(store.set_aside)
    exit_if_failed(trained)


reproduce.__doc__ = (reproduce.__doc__ or "") + EXAMPLES


def _run(
    chosen: "list[Reproduction]", folders: "Sequence[Path]", place: str, switches: bool, how: dict[str, Any]
) -> "list[CellResult]":
    """Run what no folder has, and store it in the first: what chooses among settings, and then the rest."""
    from linbench.cli.running import run_with_progress
    from linbench.reproduction.plan import choosing_cells, missing, needed_cells
    from linbench.reproduction.stored import Stored

    store = store_for_new(folders)

    def train(cells: "list[Cell]") -> "list[CellResult]":
        left = missing(cells, Stored(stores_in(folders)), place)
        return run_with_progress(left, store, search=None, stack=None, summarize=True, **how)

    first = train([cell for one in chosen for cell in choosing_cells(one, place, switches=switches)])
    stored = Stored(stores_in(folders))
    return first + train(
        [cell for one in chosen for cell in needed_cells(one, stored, place, switches=switches)]
    )


def _tables(
    chosen: "list[Reproduction]", stored: "Stored", place: str, *, switches: bool, in_full: bool
) -> "list[Table]":
    """Return what is shown of published tables.

    That is of every kind of device that ran any of it, or else of this one.

    Args:
        chosen: the tables.
        stored: results.
        place: a device of this kind.
        switches: whether the changes of the set-up are shown, and not the values.
        in_full: whether each value is shown, and not a line for each table.
    """
    from linbench.experiments.device import device_class
    from linbench.reproduction.attribution import attributions
    from linbench.reproduction.outcome import outcomes
    from linbench.reproduction.page import ledger, of_switches, overview
    from linbench.reproduction.table import cells_of

    if switches and not any(one.table.switches for one in chosen):
        raise UserError(f"no switch is written for {', '.join(one.id for one in chosen)}.")
    tables: list[Table] = []
    lines = {}
    for one in chosen:
        runs = one.runs()
        kinds = stored.kinds_of(cells_of(runs)) or [device_class(place)]
        look_ups = {kind: partial(stored.get, kind=kind) for kind in kinds}
        if switches:
            found = {kind: attributions(one, runs, look_up) for kind, look_up in look_ups.items()}
            tables += [of_switches(one, each, kind) for kind, each in found.items() if each]
        else:
            values = {kind: outcomes(one, runs, look_up) for kind, look_up in look_ups.items()}
            tables += [ledger(one, each, kind) for kind, each in values.items()] if in_full else []
            lines[one] = max(values.values(), key=_scored)
    return tables if switches or in_full else [overview(lines)]


def _scored(found: "list[Outcome]") -> int:
    return sum(each.ours is not None for each in found)


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

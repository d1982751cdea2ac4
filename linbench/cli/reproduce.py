"""`linbench reproduce`: tables that papers have published, beside our runs of the same cells."""

import json
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import AllowOption, DeviceOption, JsonOption, exit_if_failed, warn_ignored_files
from linbench.common.errors import StorageError, UserError
from linbench.common.streams import tell
from linbench.common.text import format_duration, pluralize
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.reproduction.outcome import Outcome
    from linbench.reproduction.stored import Stored
    from linbench.reproduction.table import Reproduction
    from linbench.results.schema.cells import CellResult
    from linbench.results.store import Store

EXAMPLES = """
Examples:

  linbench reproduce

  linbench reproduce R9

  linbench reproduce R9 --dry-run

  linbench reproduce R9 --run --devices all --results results/mine
"""

DEFAULT = (Path("results"), Path("reference"))
"""The folders that are read unless others are named: your results, and those that come with linbench."""


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
    device: DeviceOption = "auto",
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--results",
            metavar="DIR",
            help="Folder of results to read, with all folders in it; reference: the results of linbench.",
            show_default="results and reference",
            rich_help_panel="Results",
        ),
    ] = None,
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
    trained: list[CellResult] = []
    with redirect_stdout(sys.stderr):  # plugins may print; standard output is ours
        chosen = list(dict.fromkeys(map(find, names or []))) or list(reproductions().values())
        place = pick_device(device)
        if run:
            how = {"executor": executor, "allow": allow or ()}
            trained = _run(chosen, results or DEFAULT, place, how)
        stored = Stored(_stores(results))
        if not dry_run:
            found = {one: _by_kind(one, stored, place) for one in chosen}
    if dry_run:
        _print_plan(chosen, stored, place, as_json=as_json)
    else:
        _print(found, in_full=bool(names), as_json=as_json)
    for store in stored.stores:
        warn_ignored_files(store.set_aside)
    exit_if_failed(trained)


reproduce.__doc__ = (reproduce.__doc__ or "") + EXAMPLES


def _stores(folders: list[Path] | None) -> "list[Store]":
    """Return the stores in folders and all folders in them.

    Raises StorageError: a folder is absent.
    """
    from linbench.results.reference import REFERENCE, stores_below

    for folder in folders or []:
        if str(folder) != REFERENCE and not folder.is_dir():
            raise StorageError(f"there is no results folder {folder}; name one that exists with --results.")
    return [store for folder in folders or DEFAULT for store in stores_below(folder)]


def _by_kind(one: "Reproduction", stored: "Stored", place: str) -> "dict[str, list[Outcome]]":
    """Return what became of a table's values on every kind of device that ran any, or else on this one."""
    from linbench.experiments.device import device_class
    from linbench.reproduction.outcome import outcomes
    from linbench.reproduction.table import cells_of

    runs = one.runs()
    kinds = stored.kinds_of(cells_of(runs)) or [device_class(place)]
    return {kind: outcomes(one, runs, partial(stored.get, kind=kind)) for kind in kinds}


def _run(
    chosen: "list[Reproduction]", folders: "list[Path] | tuple[Path, ...]", place: str, how: dict[str, Any]
) -> "list[CellResult]":
    """Run the cells of tables that no folder has, and store them in the first."""
    from linbench.cli.running import run_with_progress
    from linbench.reproduction.table import cells_of
    from linbench.results.reference import store_at, stores_below

    others = [store for folder in folders[1:] for store in stores_below(folder)]
    store = store_at(folders[0], others=others)
    cells = [cell for one in chosen for cell in cells_of(one.runs(place))]
    return run_with_progress(cells, store, search=None, stack=None, summarize=True, **how)


def _print_plan(chosen: "list[Reproduction]", stored: "Stored", place: str, *, as_json: bool) -> None:
    """Print for every table its runs, those that are left, their tokens, and what they may take."""
    from linbench.engine.cost import estimate_seconds, fit_cost_model
    from linbench.engine.groups import groups
    from linbench.experiments.device import device_class
    from linbench.report.terminal import show
    from linbench.reproduction.table import cells_of

    kind = device_class(place)
    cost = fit_cost_model((result for store in stored.stores for result in store.all()), place)
    rows = []
    for one in chosen:
        cells = cells_of(one.runs(place))
        left = [cell for cell in cells if stored.get(cell, kind) is None]
        seconds = [estimate_seconds(group, cost) for group in groups(left)]
        told = [each for each in seconds if each is not None]
        rows.append(
            {
                "table": one.id,
                "runs": len(cells),
                "left": len(left),
                "tokens": sum(cell.curriculum.tokens(cell.steps) for cell in left),
                "seconds": sum(told) if len(told) == len(seconds) else None,
            }
        )
    if as_json:
        print(json.dumps(rows))
        return
    show(["table", "runs", "left", "M tokens", "may take"], [*map(_plan_line, rows)], left=["table"])


def _plan_line(row: dict[str, Any]) -> list[str]:
    seconds = row["seconds"]
    cost = "no estimate" if seconds is None else format_duration(seconds)
    return [row["table"], f"{row['runs']:,}", f"{row['left']:,}", f"{row['tokens'] / 1e6:,.0f}", cost]


def _print(found: "dict[Reproduction, dict[str, list[Outcome]]]", *, in_full: bool, as_json: bool) -> None:
    """Print the tables in full, or a line for each."""
    from linbench.reproduction.page import ledger, overview

    if as_json:
        every = [ledger(one, rows, kind) for one, by_kind in found.items() for kind, rows in by_kind.items()]
        print(json.dumps([record for table in every for record in table.to_records()]))
        return
    if not in_full:
        best = {one: max(by_kind.values(), key=_judged) for one, by_kind in found.items()}
        overview(best).show()
        tell(f"linbench: {pluralize(len(best), 'published table')}; name one to see it, cell by cell.")
        return
    for one, by_kind in found.items():
        for kind, rows in by_kind.items():
            table = ledger(one, rows, kind)
            print(f"\n{table.title}\n")
            table.show()
            print(f"\n{table.caption}")


def _judged(rows: "list[Outcome]") -> int:
    return sum(row.ours is not None for row in rows)

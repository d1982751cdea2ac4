"""`linbench sweep`: a suite of cells."""

import json
import sys
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    MOST,
    AllowOption,
    FormOption,
    JsonOption,
    PlannedDeviceOption,
    ResultsOption,
    SeedsOption,
    StackOption,
    SuiteArgument,
    SuiteModelsOption,
    exit_if_failed,
    warn_ignored_files,
    warn_left_out,
    whole_option,
)
from linbench.common import escape
from linbench.common.errors import UserError, unknown
from linbench.common.numbers import whole_number
from linbench.common.streams import tell
from linbench.common.text import format_duration, pluralize
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from linbench.engine.cost import CostModel
    from linbench.experiments.cell import Cell
    from linbench.experiments.labels import Names
    from linbench.experiments.learning_rates import SearchSettings
    from linbench.results.schema.cells import CellResult
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
    suite: SuiteArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and what it may cost, and run nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Run only tasks or models of this name; * matches anything."),
    ] = None,
    limit: Annotated[
        int | None, whole_option("--limit", 1, MOST, help="Run at most this many cells.")
    ] = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Run the I-th of N parts, to share a suite among N machines.")
    ] = "1/1",
    retry: Annotated[
        str | None, typer.Option(metavar="failed", help="failed: run failed cells again.")
    ] = None,
    model: SuiteModelsOption = None,
    seeds: SeedsOption = None,
    form: FormOption = None,
    precision: Annotated[
        str | None, typer.Option(help="Precision in place of the suite's: fp32 or bf16.")
    ] = None,
    stack: StackOption = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    device: PlannedDeviceOption = "auto",
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Run a suite: every task with every model, setting and seed.

    Finished cells are not repeated, so an interrupted sweep continues where it stopped. `linbench table` and
    `linbench figures` show what is finished at any time.
    """
    from linbench.engine.lr_search import pending_cells
    from linbench.experiments.device import pick_device
    from linbench.experiments.pattern import split_models
    from linbench.experiments.suite import expand, load, narrow
    from linbench.results.folders import kinds_of_devices
    from linbench.results.reference import REFERENCE, store_at, stores_at

    if retry not in {None, "failed"}:
        raise UserError(f"--retry takes the word failed, not '{retry}'.")
    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        chosen_suite = narrow(
            load(suite),
            models=[name for text in model or () for name in split_models(text)],
            seeds=seeds,
            form=form,
        )
        store = store_at(results)
        if dry_run:
            own = [store] if store.folder.is_dir() else []
            device = pick_device(device, kinds=lambda: kinds_of_devices([*own, *stores_at(REFERENCE)]))
        all_cells, missing = expand(chosen_suite, precision=precision, device=device)
        warn_left_out(missing)
        cells = _select(all_cells, only=only or [], shard=shard)
        former = _keep_former(all_cells, store, chosen_suite.search, retry=retry is not None)
        if limit is not None:
            not_former = [cell for cell in cells if cell.id not in former]
            pending = pending_cells(not_former, store.get, chosen_suite.search, retry=retry is not None)
            cells = [cell for cell in cells if cell.id in pending.left][:limit]
            if not cells:
                raise UserError("every cell is finished; leave out --limit to see the tables.")
        if not dry_run:
            how = {
                "search": chosen_suite.search,
                "stack": stack,
                "retry": retry is not None,
                "executor": executor,
                "allow": allow or (),
            }
            suite_results = _run(cells, former, store, **how)
    if dry_run:
        _print_plan(
            cells, former, store, stack, search=chosen_suite.search, retry=retry is not None, as_json=as_json
        )
        warn_ignored_files(store.set_aside)
        return
    # imported late: tables take a second to load
    from linbench.report.tables.comparison import table
    from linbench.results.comparison import comparisons

    warn_ignored_files(store.set_aside)
    if as_json:
        print(json.dumps(suite_results))
    else:
        shown = comparisons(suite_results, order=[cell.model.label for cell in cells])
        print("\n".join(table(comparison).to_markdown() for comparison in shown))
    exit_if_failed(suite_results)


sweep.__doc__ = (sweep.__doc__ or "") + EXAMPLES


def _select(cells: "list[Cell]", *, only: list[str], shard: str) -> "list[Cell]":
    """Return the cells that --only and --shard ask for.

    Raises UserError: a shard that is not I/N, a name that the suite does not have, or no cell is left.
    """
    from linbench.engine.groups import groups

    part, parts = _parse_shard(shard)
    names = sorted({name for cell in cells for name in (cell.task_entry.name, cell.model.label)})
    for pattern in only:
        if cells and not any(_matches(cell, pattern) for cell in cells):
            raise unknown("task or model of the suite", pattern, names)
    matching = [cell for cell in cells if not only or any(_matches(cell, pattern) for pattern in only)]
    shards = groups(matching, largest=len(matching) or 1)[part - 1 :: parts]
    in_shard = {cell.id for group in shards for cell in group}
    chosen = [cell for cell in matching if cell.id in in_shard]
    if not chosen:
        has = ", ".join(names) or "no task or model that is installed"
        raise UserError(f"nothing of the suite is left to run; it has {has}.")
    return chosen


def _parse_shard(text: str) -> tuple[int, int]:
    first, _, second = text.partition("/")
    part, parts = whole_number(first, 1, MOST), whole_number(second, 1, MOST)
    if part is None or parts is None or part > parts:
        raise UserError(f"--shard takes I/N, such as 1/4 for the first of four parts, not '{text}'.")
    return part, parts


def _matches(cell: "Cell", pattern: str) -> bool:
    from linbench.experiments.pattern import split_task

    names = (cell.model.label, cell.task_entry.name, f"{cell.task_entry.name}/{cell.preset}")
    if any(fnmatchcase(name, pattern) for name in names):
        return True
    # a path may contain brackets, which mean something in a pattern: compare it as a name, too
    name = "/".join(filter(None, split_task(pattern))).removeprefix("./")
    return name in {each.removeprefix("./") for each in names}


def _keep_former(
    cells: "list[Cell]", store: "Store", search: "SearchSettings | None", *, retry: bool
) -> "dict[str, CellResult]":
    """Return stored results whose learning rates a former rule chose, for models that have no others.

    They are not run again; a line on standard error says so.
    """
    from linbench.engine.former import describe_former_rules, settled_by_former_rules
    from linbench.engine.runner import is_final

    def final_result(cell: "Cell") -> "CellResult | None":
        result = store.get(cell.id)
        return result if is_final(result, again=False, retry=retry) else None

    former = settled_by_former_rules(cells, final_result, search)
    for words in describe_former_rules(list(former.values())):
        tell(f"linbench: {pluralize(len(former), 'stored result')}: {words}; not run again.")
    return former


def _run(
    cells: "list[Cell]", former: "dict[str, CellResult]", store: "Store", **how: Any
) -> "list[CellResult]":
    """Return the results of the cells; those that are not kept are run."""
    from linbench.cli.running import run_with_progress

    waiting = list({cell.id: cell for cell in cells if cell.id not in former}.values())
    by_id = dict(former)
    if waiting:
        for cell, result in zip(
            waiting, run_with_progress(waiting, store, summarize=True, **how), strict=True
        ):
            by_id[cell.id] = result
    return [by_id[cell.id] for cell in cells]


class _PlannedGroup(NamedTuple):
    """A group of cells that trains as one program. seconds: None if there is no estimate."""

    name: str
    cells: int
    left: int
    seconds: float | None

    def line(self) -> str:
        name = escape.one_line(self.name)
        if not self.left:
            return f"{name}: finished"
        cost = "no estimate" if self.seconds is None else f"about {format_duration(self.seconds)}"
        return f"{name}: {pluralize(self.cells, 'cell')}, {self.left} left, {cost}"


def _print_plan(
    cells: "list[Cell]",
    former: "dict[str, CellResult]",
    store: "Store",
    stack: int | None,
    *,
    search: "SearchSettings | None",
    retry: bool,
    as_json: bool,
) -> None:
    """Print what would run, group by group, tuning cells of the search first.

    Raises UserError: a seed is a tuning seed and to be reported, too.
    """
    from linbench.engine.cost import fit_cost_model
    from linbench.engine.lr_search import pending_cells
    from linbench.experiments.device import Elsewhere
    from linbench.experiments.labels import naming_scheme

    known: list[CellResult] = store.all() if store.folder.is_dir() else []
    by_id = {result["id"]: result for result in known}
    not_former = [cell for cell in cells if cell.id not in former]
    tuning, missing, most_to_come = pending_cells(not_former, by_id.get, search, retry=retry)
    names = naming_scheme(cells, but={"protocol.lr"} if search else ())
    device = cells[0].device
    elsewhere = isinstance(device, Elsewhere)
    cost = fit_cost_model(_with_shipped(known, device) if elsewhere else known, device)
    groups = _plan_groups("search, ", tuning, missing, names, cost, stack)
    groups += _plan_groups("", cells, missing, names, cost, stack)
    if as_json:
        rows = [
            {"group": group.name, "cells": group.cells, "left": group.left, "seconds": group.seconds}
            for group in groups
        ]
        ids = [cell.id for cell in cells]
        print(json.dumps({"groups": rows, "cells": ids, "searched": search is not None}))
        return
    for group in _merge_same_names(groups):
        print(group.line())
    where = f"on {device}" if elsewhere else "here"
    print(_summary(groups, len(tuning) + len(cells), cost.cells if cost else 0, where))
    rungs = max(cell.protocol.rungs for cell in cells)
    if search and most_to_come:
        print(_what_may_come(search, most_to_come, halving=search.halving and rungs > 1))
    if rungs > 1:
        times = pluralize(rungs - 1, "time")
        print(
            f"Training goes on with twice the budget until it is learned, at most {times}; not counted above."
        )


def _with_shipped(known: "list[CellResult]", kind: str) -> "list[CellResult]":
    """Return results, with those of folders of linbench that have any of a kind of device, each once."""
    from linbench.results.folders import kinds_of_devices
    from linbench.results.reference import REFERENCE, stores_at

    shipped = (store.all() for store in stores_at(REFERENCE) if kind in kinds_of_devices([store]))
    return list({result["id"]: result for results in (known, *shipped) for result in results}.values())


def _what_may_come(search: "SearchSettings", cells: int, *, halving: bool) -> str:
    """Return what searches may add to a plan.

    Args:
        search: their settings.
        cells: the most cells of it.
        halving: whether the better rates climb to higher rungs.
    """
    ways = []
    if search.extensions:
        rates = pluralize(search.extensions, "rate")
        ways.append(f"up to {rates} beyond the grid if the best is at its edge")
    if halving:
        ways.append("the better half of the rates with each doubling of the budget")
    if search.refine:
        ways.append("the 2 rates a quarter decade from the best")
    return f"Each search may add {', and then '.join(ways)}: at most {pluralize(cells, 'cell')} more in all."


def _plan_groups(
    prefix: str,
    cells: "Sequence[Cell]",
    missing: "Collection[str]",
    names: "Names",
    cost: "CostModel | None",
    stack: int | None,
) -> list[_PlannedGroup]:
    from linbench.engine.cost import estimate_seconds
    from linbench.engine.groups import groups
    from linbench.experiments.labels import format_cells

    planned = []
    for group in groups(cells, largest=stack):
        unfinished = [cell for cell in group if cell.id in missing]
        estimate = estimate_seconds(unfinished, cost) if unfinished else 0.0
        planned.append(
            _PlannedGroup(prefix + format_cells(group, names), len(group), len(unfinished), estimate)
        )
    return planned


def _merge_same_names(groups: list[_PlannedGroup]) -> list[_PlannedGroup]:
    """Merge groups of one name. Rates of a search have one, since names leave learning rates out."""
    merged: dict[str, _PlannedGroup] = {}
    for group in groups:
        other = merged.get(group.name)
        if other is not None:
            costs = [one.seconds for one in (other, group) if one.seconds is not None]
            seconds = sum(costs) if costs else None
            group = _PlannedGroup(group.name, other.cells + group.cells, other.left + group.left, seconds)
        merged[group.name] = group
    return list(merged.values())


def _summary(groups: list[_PlannedGroup], cells: int, measured: int, where: str) -> str:
    open_groups = [group for group in groups if group.left]
    total = sum(group.left for group in open_groups)
    costs = [group.seconds for group in open_groups if group.seconds is not None]
    if not total:
        left = "all finished"
    elif not costs:
        which = "cell like these" if measured else "cell"
        left = f"{total} left: no estimate, since no {which} has finished on this kind of device yet"
    else:
        without = ", not counting groups without an estimate" if len(costs) < len(open_groups) else ""
        judged = f"judging by {pluralize(measured, 'cell')} finished {where}"
        left = f"{total} left: about {format_duration(sum(costs))}, {judged}{without}"
    return f"{pluralize(cells, 'cell')} in {pluralize(len(groups), 'group')}, {left}."

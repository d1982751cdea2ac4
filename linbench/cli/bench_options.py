"""Options that verbs of `linbench bench` share, and how their results are printed."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from linbench.cli.options import JsonOption, ResultsOption, warn_ignored_files
from linbench.common import escape
from linbench.common.errors import EXIT_CELLS_FAILED
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.bench.case import BenchmarkCase
    from linbench.report.table import Table
    from linbench.results.schema.benchmarks import BenchmarkResult
    from linbench.results.store import Store

SHAPE, LAYER, TIMING = "Shape", "Layer", "Measuring"
"""Titles of panels of options in help texts."""

Options = TypeVar("Options", bound="BenchOptions")


@dataclass(frozen=True)
class BenchOptions:
    """Options of every verb of `linbench bench`. A verb has a dataclass of its own, with this as a base."""

    device: Annotated[
        str, typer.Option("--device", rich_help_panel=TIMING, help="auto, cpu, cuda or cuda:N.")
    ] = "auto"
    again: Annotated[
        bool, typer.Option("--again", rich_help_panel=TIMING, help="Measure anew what was measured before.")
    ] = False
    results: ResultsOption = Path("results")
    as_json: JsonOption = False


@dataclass(frozen=True)
class ShapedOptions(BenchOptions):
    """Options of verbs whose cases have shapes and a dtype."""

    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", rich_help_panel=SHAPE, help="bf16 or fp32; default: fp32 on a CPU, else bf16."
        ),
    ] = None


def with_options(
    options: type[Options], *, without: Sequence[str] = ()
) -> Callable[..., Callable[..., None]]:
    """Return a decorator that gives a verb the fields of a dataclass as its options.

    The verb is called with one argument, the dataclass.

    Args:
        without: fields that this verb does not offer; they keep their defaults.
    """
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(options)
        if field.name not in without
    ]

    def decorate(verb: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(verb)
        def run(**values: Any) -> None:
            verb(options(**values))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def measure_and_show(
    cases: "Sequence[BenchmarkCase]",
    tables: "Callable[[Sequence[BenchmarkResult]], Sequence[Table]]",
    options: BenchOptions,
    *,
    extend: "Callable[[list[BenchmarkResult], Store], None] | None" = None,
) -> None:
    """Measure cases, or read what was measured, and print the results as `linbench table` does.

    Args:
        extend: measures more of the results, and stores it.
    """
    from linbench.bench.run import run
    from linbench.results.reference import store_at

    store = store_at(options.results)
    results = run(cases, store, again=options.again, tell=tell)
    if extend is not None:
        extend(results, store)
    warn_ignored_files(store.set_aside)
    if options.as_json:
        print(json.dumps(results))
    else:
        shown = tables(results)
        for table in shown:
            print(f"{escape.one_line(table.title)}\n")
            table.show()
            print()
        print("\n".join(dict.fromkeys(escape.one_line(table.caption) for table in shown)))
    if failed := [result for result in results if result["status"] == "failed"]:
        tell(
            f"linbench: {len(failed)} of {len(results)} could not be measured; the first:"
            f" {failed[0]['label']}: {failed[0]['reason']}."
        )
        raise typer.Exit(EXIT_CELLS_FAILED)

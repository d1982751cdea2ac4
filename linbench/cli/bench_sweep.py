"""`linbench bench sweep`: the speed of a whole suite."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli.bench_options import BenchOptions, measure_and_show
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    DeviceOption,
    JsonOption,
    ResultsOption,
    SeedsOption,
    StackOption,
    SuiteArgument,
    SuiteModelsOption,
    warn_left_out,
)
from linbench.common.errors import UserError
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.report.table import Table
    from linbench.results.schema.benchmarks import BenchmarkResult


@with_executor_options
def sweep(
    suite: SuiteArgument,
    model: SuiteModelsOption = None,
    seeds: SeedsOption = None,
    stack: StackOption = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    device: DeviceOption = "auto",
    again: Annotated[bool, typer.Option("--again", help="Measure anew what was measured before.")] = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Measure a whole suite: from this command to its last result, and where the time of workers goes.

    The suite is run as linbench sweep runs it, into a folder that is thrown away, so nothing is finished
    before; all that is kept is how long it took. The time of workers goes into building models, first steps
    with compilation on a GPU, training, evaluation, and the rest: starting, waiting, reading and writing.
    """
    from linbench.bench.sweep import plan
    from linbench.experiments.pattern import split_models
    from linbench.experiments.suite import expand, load, narrow

    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        names = [name for text in model or () for name in split_models(text)]
        chosen = narrow(load(suite), models=names, seeds=seeds)
        cells, missing = expand(chosen, device=device)
        warn_left_out(missing)
        if not cells:
            raise UserError(f"nothing of the suite {suite} can be run here.")
        case = plan(Path(suite).name, cells, search=chosen.search, executor=executor, stack=stack)
    measure_and_show([case], _tables, BenchOptions(device, again, results, as_json))


def _tables(results: "Sequence[BenchmarkResult]") -> "list[Table]":
    from linbench.report.tables.sweeps import sweep_tables
    from linbench.results.record import sweep_results

    return sweep_tables(sweep_results(results))

"""`linbench bench`: speed and memory of kernels, layers, training steps, drawing and whole suites."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from linbench.cli import bench_layers, bench_sweep
from linbench.cli.bench_options import (
    LAYER,
    SHAPE,
    TIMING,
    BenchOptions,
    ShapedOptions,
    measure_and_show,
    with_options,
)
from linbench.cli.help import help_of
from linbench.cli.options import MOST, parse_names, parse_numbers, whole_option
from linbench.common.errors import UserError
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.bench.presets import Preset
    from linbench.report.table import Table
    from linbench.results.schema.benchmarks import BenchmarkResult

Shape = TypeVar("Shape")


def _names(option: str, panel: str, text: str) -> Any:
    return typer.Option(option, metavar="NAMES", rich_help_panel=panel, help=text)


def _repeat(text: str) -> Any:
    return whole_option("--repeat", 1, MOST, rich_help_panel=TIMING, help=text)


def _peer(text: str) -> Any:
    return typer.Option(rich_help_panel=TIMING, help=text)


def _shapes(example: str) -> Any:
    return typer.Option(rich_help_panel=SHAPE, help=f"Such as {example}.")


@dataclass(frozen=True)
class _PresetOptions(ShapedOptions):
    """Options of verbs whose shapes come from a preset or from --shapes."""

    preset: Annotated[
        str | None,
        typer.Option(
            "--preset", rich_help_panel=SHAPE, help="tiny, benchmark, lm or long, instead of --shapes."
        ),
    ] = None


@dataclass(frozen=True)
class OperationOptions(_PresetOptions):
    """Options of `linbench bench ops`."""

    operations: Annotated[
        str | None, _names("--ops", LAYER, "Operations, comma-separated; default: all.")
    ] = None
    shapes: Annotated[str | None, _shapes("B256xT256xH2xD64,B8xT4096xH16xD128")] = None
    peer: Annotated[
        str | None, _peer("fla, transformers or sdpa: measure it too, in turn with linbench's.")
    ] = None
    repeat: Annotated[int | None, _repeat("Calls behind a median; default: 100, on a CPU 20.")] = None
    first_call: Annotated[
        bool,
        typer.Option(
            "--first-call",
            rich_help_panel=TIMING,
            help="Also measure the first call, with an empty cache of compiled kernels.",
        ),
    ] = False


@with_options(OperationOptions)
def ops(options: OperationOptions) -> None:
    """Measure kernels, forward and backward.

    For each: time as called and on the device alone, memory, and how near it comes to what the device can do.
    """
    from linbench.bench.kernel import add_cold_calls, plan, shapes_of
    from linbench.bench.operations import parse_shapes
    from linbench.experiments.device import pick_device

    cases = plan(
        device=pick_device(options.device),
        operations=parse_names("--ops", options.operations),
        shapes=_pick_shapes(options.preset, options.shapes, shapes_of, parse_shapes),
        dtype=options.dtype,
        peer=options.peer,
        repeats=options.repeat,
    )
    cold_calls = partial(add_cold_calls, cases, again=options.again, tell=tell)
    measure_and_show(cases, _tables, options, extend=cold_calls if options.first_call else None)


@dataclass(frozen=True)
class StepOptions(_PresetOptions):
    """Options of `linbench bench train`."""

    models: Annotated[
        str | None,
        _names("--models", LAYER, "Layer patterns, comma-separated; default: those that the peer has."),
    ] = None
    shapes: Annotated[str | None, _shapes("B512xT64xD64,B128xT256xD128")] = None
    replicas: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS", rich_help_panel=SHAPE, help="Models that train as one program, such as 1,12."
        ),
    ] = "1"
    peer: Annotated[
        str | None,
        _peer("zoology-style: measure it too, in turn with linbench's; it needs flash-linear-attention."),
    ] = None
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            rich_help_panel=TIMING,
            help="Also measure where the time of a step goes; needs a GPU.",
        ),
    ] = False
    repeat: Annotated[int | None, _repeat("Windows behind a median; default: 9, on a CPU 5.")] = None


@with_options(StepOptions)
def train(options: StepOptions) -> None:
    """Measure whole training steps: milliseconds, tokens per second, memory, and where the time goes."""
    from linbench.bench.step import parse_shapes, plan, shapes_of
    from linbench.experiments.device import pick_device
    from linbench.experiments.pattern import split_models

    cases = plan(
        device=pick_device(options.device),
        models=[] if options.models is None else split_models(options.models),
        shapes=_pick_shapes(options.preset, options.shapes, shapes_of, parse_shapes),
        replicas=parse_numbers("--replicas", options.replicas),
        precision=options.dtype,
        peer=options.peer,
        repeats=options.repeat,
        by_part=options.profile,
    )
    measure_and_show(cases, _tables, options)


@dataclass(frozen=True)
class DataOptions(BenchOptions):
    """Options of `linbench bench data`."""

    tasks: Annotated[
        str | None, _names("--tasks", SHAPE, "TASK or TASK/PRESET, comma-separated; default: all.")
    ] = None
    peer: Annotated[str | None, _peer("numpy: measure it too, in turn with linbench's, on a CPU.")] = None
    repeat: Annotated[int | None, _repeat("Draws behind a median; default: 50, on a CPU 5.")] = None


@with_options(DataOptions)
def data(options: DataOptions) -> None:
    """Measure how fast examples are drawn, in tokens per second.

    On a CPU also the time of 100,000 examples on one core; on a GPU also a batch of 2^18 tokens alone.
    """
    from linbench.bench.generators import plan
    from linbench.experiments.device import pick_device

    cases = plan(
        parse_names("--tasks", options.tasks),
        device=pick_device(options.device),
        peer=options.peer,
        repeats=options.repeat,
    )
    measure_and_show(cases, _tables, options)


bench = typer.Typer(
    help="Measure speed and memory, beside other implementations where they are installed.",
    no_args_is_help=True,
)
for _verb in (
    bench_layers.length,
    bench_layers.prefill,
    bench_layers.decode,
    bench_layers.memory,
    bench_layers.forms,
    ops,
    train,
    data,
    bench_sweep.sweep,
):
    bench.command(_verb.__name__, help=help_of(_verb))(_verb)


def _pick_shapes(
    preset: str | None,
    shapes: str | None,
    of_preset: "Callable[[Preset], tuple[Shape, ...]]",
    parse: "Callable[[str], tuple[Shape, ...]]",
) -> "tuple[Shape, ...]":
    """Return the shapes of a preset or those that are written out; none if neither is given.

    Raises UserError: both are given, or what is given is wrong.
    """
    from linbench.bench.presets import resolve_preset

    if preset is not None and shapes is not None:
        raise UserError("--preset and --shapes both say what shapes are measured; leave out one of them.")
    if preset is not None:
        return of_preset(resolve_preset(preset))
    return () if shapes is None else parse(shapes)


def _tables(results: "Sequence[BenchmarkResult]") -> "list[Table]":
    from linbench.report.tables.benchmarks import bench_tables
    from linbench.results.record import timing_results

    return bench_tables(timing_results(results))

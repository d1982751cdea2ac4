"""`linbench bench`: speed and memory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from linbench.cli import bench_layers
from linbench.cli.bench_options import LAYER, SHAPE, TIMING, AgainOption, DeviceOption, DtypeOption, measured
from linbench.cli.help import help_of
from linbench.cli.options import MOST, JsonOption, ResultsOption, names, numbers, whole_option
from linbench.common.errors import UserError
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.bench.presets import Preset
    from linbench.report.style.wording import Words
    from linbench.results.record import Result

Shape = TypeVar("Shape")

bench = typer.Typer(help="Speed and memory, measured beside the peers.", no_args_is_help=True)
bench.command("length", help=help_of(bench_layers.length))(bench_layers.length)
bench.command("prefill", help=help_of(bench_layers.prefill))(bench_layers.prefill)
bench.command("decode", help=help_of(bench_layers.decode))(bench_layers.decode)
bench.command("memory", help=help_of(bench_layers.memory))(bench_layers.memory)
bench.command("forms", help=help_of(bench_layers.forms))(bench_layers.forms)

PresetOption = Annotated[
    str | None,
    typer.Option("--preset", rich_help_panel=SHAPE, help="tiny, benchmark, lm or long, instead of --shapes."),
]


@bench.command("ops")
def ops(
    operations: Annotated[
        str | None,
        typer.Option(
            "--ops",
            metavar="NAMES",
            rich_help_panel=LAYER,
            help="Operations, separated by commas; default: all.",
        ),
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(rich_help_panel=SHAPE, help="Such as B256xT256xH2xD64,B8xT4096xH16xD128.")
    ] = None,
    preset: PresetOption = None,
    dtype: DtypeOption = None,
    peer: Annotated[
        str | None,
        typer.Option(rich_help_panel=TIMING, help="fla or transformers: measure it too, in turn with ours."),
    ] = None,
    device: DeviceOption = "auto",
    repeat: Annotated[
        int | None,
        whole_option(
            "--repeat",
            1,
            MOST,
            rich_help_panel=TIMING,
            help="Calls that a median is of; default: 100, on a CPU 20.",
        ),
    ] = None,
    first_call: Annotated[
        bool,
        typer.Option(
            "--first-call",
            rich_help_panel=TIMING,
            help="Also seconds of the first call, with an empty cache.",
        ),
    ] = False,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Kernels, forward and backward: as called, on the device alone, memory, and how near they come to what
    the device could do."""
    from linbench.bench.kernel import add_cold_calls, plan, shapes_of
    from linbench.bench.operations import parse_shapes
    from linbench.experiments.device import pick_device

    cases = plan(
        device=pick_device(device),
        operations=names("--ops", operations),
        shapes=_shapes(preset, shapes, shapes_of, parse_shapes),
        dtype=dtype,
        peer=peer,
        repeats=repeat,
    )
    more = (
        (lambda found, store: add_cold_calls(cases, found, store, again=again, tell=tell))
        if first_call
        else None
    )
    measured(cases, _tables, results=results, again=again, as_json=as_json, more=more)


@bench.command("train")
def train(
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            metavar="NAMES",
            rich_help_panel=LAYER,
            help="Layer patterns, separated by commas; default: those of the peer.",
        ),
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(rich_help_panel=SHAPE, help="Such as B512xT64xD64,B128xT256xD128.")
    ] = None,
    preset: PresetOption = None,
    replicas: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS", rich_help_panel=SHAPE, help="Models trained as one program, such as 1,12."
        ),
    ] = "1",
    dtype: DtypeOption = None,
    peer: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TIMING,
            help="zoology-style: measure it too, in turn with ours; it needs flash-linear-attention.",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", rich_help_panel=TIMING, help="Also where the time of a step goes on a GPU."
        ),
    ] = False,
    device: DeviceOption = "auto",
    repeat: Annotated[
        int | None,
        whole_option(
            "--repeat",
            1,
            MOST,
            rich_help_panel=TIMING,
            help="Windows that a median is of; default: 9, on a CPU 5.",
        ),
    ] = None,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Whole training steps: milliseconds, tokens per second, memory, and where the time goes."""
    from linbench.bench.step import parse_shapes, plan, shapes_of
    from linbench.experiments.device import pick_device
    from linbench.experiments.pattern import split_models

    cases = plan(
        device=pick_device(device),
        models=[] if models is None else split_models(models),
        shapes=_shapes(preset, shapes, shapes_of, parse_shapes),
        replicas=numbers("--replicas", replicas),
        precision=dtype,
        peer=peer,
        repeats=repeat,
        by_part=profile,
    )
    measured(cases, _tables, results=results, again=again, as_json=as_json)


@bench.command("data")
def data(
    tasks: Annotated[
        str | None,
        typer.Option(
            "--tasks",
            metavar="NAMES",
            rich_help_panel=SHAPE,
            help="TASK or TASK/PRESET, separated by commas; default: all.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    peer: Annotated[
        str | None,
        typer.Option(rich_help_panel=TIMING, help="numpy: measure it too, in turn with ours, on a CPU."),
    ] = None,
    repeat: Annotated[
        int | None,
        whole_option(
            "--repeat",
            1,
            MOST,
            rich_help_panel=TIMING,
            help="Draws that a median is of; default: 50, on a CPU 5.",
        ),
    ] = None,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Drawing examples: tokens per second; on a CPU the time of 100,000 examples on one core, on a GPU also a
    batch of 2^18 tokens alone."""
    from linbench.bench.generators import plan
    from linbench.experiments.device import pick_device

    cases = plan(names("--tasks", tasks), device=pick_device(device), peer=peer, repeats=repeat)
    measured(cases, _tables, results=results, again=again, as_json=as_json)


def _shapes(
    preset: str | None,
    shapes: str | None,
    of: "Callable[[Preset], tuple[Shape, ...]]",
    parsed: "Callable[[str], tuple[Shape, ...]]",
) -> "tuple[Shape, ...]":
    """Of a preset or as they are written; none where neither is given. Raises UserError: both are, or what is
    given is none."""
    from linbench.bench.presets import shaped

    if preset is not None and shapes is not None:
        raise UserError("--preset and --shapes both say what shapes are measured; leave out one of them.")
    return of(shaped(preset)) if preset is not None else parsed(shapes) if shapes is not None else ()


def _tables(found: "Sequence[Result]") -> "list[Words]":
    from linbench.report.tables.benchmarks import bench_tables

    return bench_tables(found)

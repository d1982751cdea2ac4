"""`linbench bench length`, `prefill`, `decode`, `memory` and `forms`: speed and memory of single layers."""

from dataclasses import dataclass
from typing import Annotated

import typer

from linbench.cli.bench_layer_options import CasesOfVerb, LayerOptions
from linbench.cli.bench_options import LAYER, SHAPE, measure_and_show, with_options
from linbench.cli.options import parse_numbers


@with_options(LayerOptions, without=["batch"])
def length(options: LayerOptions) -> None:
    """Measure training, prompts, memory and state at several lengths, with equal tokens in a batch.

    Also fits the exponent by which time grows with the length.
    """
    from linbench.bench.length import cases

    _run(options, lambda layers, shape: cases(layers(shape), shape))


@with_options(LayerOptions, without=["batch"])
def prefill(options: LayerOptions) -> None:
    """Measure prompts: from an empty state to one from which decoding can go on.

    At every length, one sequence alone and a batch with the same number of tokens are timed.
    """
    from linbench.bench.prefill import cases

    _run(options, lambda layers, shape: cases(layers(shape), shape))


@with_options(LayerOptions, without=["tokens"])
def decode(options: LayerOptions) -> None:
    """Measure the decoding of one more token after contexts of several lengths.

    Shown are the latency of one sequence and the tokens per second of many at once.
    """
    from linbench.bench.decode import cases

    _run(options, lambda layers, shape: cases(layers(shape), shape))


@with_options(LayerOptions, without=["batch", "peer", "repeat"])
def memory(options: LayerOptions) -> None:
    """Measure the memory that training takes at its peak beyond weights and input, and the size of the state.

    The state is the state or cache that a sequence leaves behind.
    """
    from linbench.bench.memory import cases

    _run(options, lambda layers, shape: cases(layers(shape), shape))


@dataclass(frozen=True)
class FormsOptions(LayerOptions):
    """Options of `linbench bench forms`."""

    models: Annotated[
        str | None,
        typer.Option(
            "--models", metavar="NAMES", rich_help_panel=LAYER, help="Models whose kernels have these forms."
        ),
    ] = "deltanet"
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            rich_help_panel=SHAPE,
            help="tiny, benchmark, lm, long or forms; default: tiny on a CPU, else forms.",
        ),
    ] = None
    head_dims: Annotated[
        str | None,
        typer.Option("--head-dims", metavar="NUMBERS", rich_help_panel=SHAPE, help="Default: 32,64,128."),
    ] = None


@with_options(FormsOptions, without=["suite", "batch", "heads", "peer"])
def forms(options: FormsOptions) -> None:
    """Measure training of a layer in every form of its kernels, by length and head dimension.

    The forms are: token by token, a parallel scan, chunk by chunk in torch, and Triton. The scan over
    transition matrices exists for this comparison only.
    """
    from linbench.bench.forms import cases

    head_dims = parse_numbers("--head-dims", options.head_dims)
    _run(options, lambda layers, shape: cases(layers, shape, head_dims), gpu_preset="forms")


def _run(options: LayerOptions, cases: CasesOfVerb, *, gpu_preset: str = "benchmark") -> None:
    """Measure and print the cases of a verb. gpu_preset: the preset on a GPU if none is given."""
    from linbench.experiments.device import pick_device
    from linbench.report.tables.layer_speeds import tables
    from linbench.results.record import speed_results

    options.settings()  # what contradicts itself is refused before anything is looked up
    device = pick_device(options.device)
    shape = options.shape(device, gpu_preset)
    planned = cases(lambda preset: options.cases(preset, device), shape)
    measure_and_show(planned, lambda results: tables(speed_results(results)), options)

"""`linbench bench length`, `prefill`, `decode`, `memory` and `forms`: layers, measured and kept as
results."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli.bench_options import LAYER, SHAPE, TIMING, AgainOption, DeviceOption, DtypeOption, measured
from linbench.cli.options import MOST, JsonOption, ResultsOption, numbers, parse_settings, whole_option
from linbench.common.errors import UserError

if TYPE_CHECKING:
    from linbench.bench.layer import Case
    from linbench.bench.presets import Preset

ModelsOption = Annotated[
    str | None,
    typer.Option(
        "--models",
        metavar="NAMES",
        rich_help_panel=LAYER,
        help="As of `linbench run --model`, separated by commas; default: all that are registered.",
    ),
]
SuiteOption = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="SUITE",
        rich_help_panel=LAYER,
        help="Layers as its cells have them, such as zoo; --models chooses among them.",
    ),
]
FormOption = Annotated[
    str | None,
    typer.Option(
        "--form", rich_help_panel=LAYER, help="native or controlled; default: native, of a suite its own."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", rich_help_panel=LAYER, help="Of the layers: model.NAME."),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        rich_help_panel=SHAPE,
        help="tiny, benchmark, lm or long; default: tiny on a CPU, else benchmark.",
    ),
]
LengthsOption = Annotated[
    str | None,
    typer.Option(
        "--lengths", metavar="NUMBERS", rich_help_panel=SHAPE, help="Tokens of a sequence, such as 256,4096."
    ),
]
TokensOption = Annotated[
    int | None,
    whole_option("--tokens", 1, MOST, rich_help_panel=SHAPE, help="Of a batch, the same at every length."),
]
WidthOption = Annotated[
    int | None, whole_option("--d-model", 1, MOST, rich_help_panel=SHAPE, help="Width of the layer.")
]
HeadsOption = Annotated[
    int | None, whole_option("--heads", 1, MOST, rich_help_panel=SHAPE, help="Of layers that have heads.")
]
BatchOption = Annotated[
    int | None,
    whole_option(
        "--batch", 1, MOST, rich_help_panel=SHAPE, help="Sequences decoded at once, beside one alone."
    ),
]
PeerOption = Annotated[
    str | None,
    typer.Option(
        "--peer",
        rich_help_panel=TIMING,
        help="fla, transformers or sdpa: measure its layer too, in turn with ours.",
    ),
]
RepeatOption = Annotated[
    int | None,
    whole_option(
        "--repeat",
        1,
        MOST,
        rich_help_panel=TIMING,
        help="Calls that a median is of, of decoding ten times as many; default: 30, on a CPU 20.",
    ),
]

SET_BY = {"--d-model": "d_model", "--heads": "heads"}
"""What --set model.NAME says, too."""

SIZED_BY = {"--set": "set_", **SET_BY}
"""What a suite says of its layers."""


def length(
    models: ModelsOption = None,
    suite: SuiteOption = None,
    form: FormOption = None,
    set_: SetOption = None,
    preset: PresetOption = None,
    lengths: LengthsOption = None,
    tokens: TokensOption = None,
    d_model: WidthOption = None,
    heads: HeadsOption = None,
    dtype: DtypeOption = None,
    peer: PeerOption = None,
    device: DeviceOption = "auto",
    repeat: RepeatOption = None,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Layers against the length of sequences, at as many tokens in every batch: training and prompts, memory,
    state, and the exponent by which time grows."""
    given = locals()
    from linbench.bench.length import cases

    _run(lambda base, shape: cases(base(shape), shape), given)


def prefill(
    models: ModelsOption = None,
    suite: SuiteOption = None,
    form: FormOption = None,
    set_: SetOption = None,
    preset: PresetOption = None,
    lengths: LengthsOption = None,
    tokens: TokensOption = None,
    d_model: WidthOption = None,
    heads: HeadsOption = None,
    dtype: DtypeOption = None,
    peer: PeerOption = None,
    device: DeviceOption = "auto",
    repeat: RepeatOption = None,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Prompts, from an empty state to one that can be carried on: one alone, and a batch of as many tokens at
    every length."""
    given = locals()
    from linbench.bench.prefill import cases

    _run(lambda base, shape: cases(base(shape), shape), given)


def decode(
    models: ModelsOption = None,
    suite: SuiteOption = None,
    form: FormOption = None,
    set_: SetOption = None,
    preset: PresetOption = None,
    lengths: LengthsOption = None,
    batch: BatchOption = None,
    d_model: WidthOption = None,
    heads: HeadsOption = None,
    dtype: DtypeOption = None,
    peer: PeerOption = None,
    device: DeviceOption = "auto",
    repeat: RepeatOption = None,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """One more token after contexts of several lengths: latency of a sequence alone, and tokens per second of
    many at once."""
    given = locals()
    from linbench.bench.decode import cases

    _run(lambda base, shape: cases(base(shape), shape), given)


def memory(
    models: ModelsOption = None,
    suite: SuiteOption = None,
    form: FormOption = None,
    set_: SetOption = None,
    preset: PresetOption = None,
    lengths: LengthsOption = None,
    tokens: TokensOption = None,
    d_model: WidthOption = None,
    heads: HeadsOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """What training takes at most beyond weights and input, and the state or cache that a sequence leaves
    behind."""
    given = locals()
    from linbench.bench.memory import cases

    _run(lambda base, shape: cases(base(shape), shape), given)


def forms(
    models: Annotated[
        str,
        typer.Option(
            "--models", metavar="NAMES", rich_help_panel=LAYER, help="Whose kernels have these forms."
        ),
    ] = "deltanet",
    head_dims: Annotated[
        str | None,
        typer.Option("--head-dims", metavar="NUMBERS", rich_help_panel=SHAPE, help="Default: 32,64,128."),
    ] = None,
    form: FormOption = None,
    set_: SetOption = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset", rich_help_panel=SHAPE, help="As of the others; default: tiny on a CPU, else forms."
        ),
    ] = None,
    lengths: LengthsOption = None,
    tokens: TokensOption = None,
    d_model: WidthOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    repeat: RepeatOption = None,
    again: AgainOption = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Training of one layer in every form of its kernels: token by token, as a parallel scan, a chunk at a
    time, in Triton, by length and head dimension.

    The scan over transition matrices is there for this comparison; nothing else uses it.
    """
    given = locals()
    from linbench.bench.forms import cases

    dims = numbers("--head-dims", head_dims)
    _run(lambda base, shape: cases(base, shape, dims), given, otherwise="forms")


def _run(
    cases: "Callable[[Callable[[Preset], list[Case]], Preset], list[Case]]",
    given: dict[str, Any],
    *,
    otherwise: str = "benchmark",
) -> None:
    """otherwise: the preset of a GPU."""
    from linbench.bench.presets import base, shaped, usual
    from linbench.experiments.device import pick_device
    from linbench.experiments.pattern import split_models
    from linbench.report.tables.layer_speeds import tables

    suite = given.get("suite")
    if suite and (told := [name for name, key in SIZED_BY.items() if given[key]]):
        raise UserError(f"--suite says what layers are like; leave out {', '.join(told)}.")
    settings = parse_settings(given["set_"] or [])
    if other := next((name for name in settings if not name.startswith("model.")), None):
        hint = "only model.NAME does." if "." in other else f"did you mean model.{other}?"
        raise UserError(f"--set {other} says nothing of a layer; {hint}")
    if twice := [
        option for option, name in SET_BY.items() if given.get(name) and f"model.{name}" in settings
    ]:
        raise UserError(f"{twice[0]} and --set model.{SET_BY[twice[0]]} say the same; leave out one of them.")
    where = pick_device(given["device"])
    shape = shaped(
        given["preset"] or usual(where, otherwise),
        d_model=given["d_model"],
        heads=given.get("heads"),
        lengths=numbers("--lengths", given["lengths"]),
        tokens=given.get("tokens"),
        decoded=given.get("batch"),
    )
    layers = {
        "suite": suite,
        "form": given["form"],
        "settings": settings,
        "device": where,
        "precision": given["dtype"],
        "peer": given.get("peer"),
        "repeats": given.get("repeat"),
    }
    models = [] if given["models"] is None else split_models(given["models"])
    planned = cases(lambda preset: base(models, preset, **layers), shape)
    measured(planned, tables, results=given["results"], again=given["again"], as_json=given["as_json"])

"""Options of the verbs of `linbench bench` that measure layers, and the cases that they ask for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli.bench_options import LAYER, SHAPE, TIMING, ShapedOptions
from linbench.cli.options import MOST, parse_numbers, parse_settings, whole_option
from linbench.common.errors import UserError

if TYPE_CHECKING:
    from linbench.bench.layer import LayerCase
    from linbench.bench.presets import Preset


def _text(name: str, panel: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=text)


def _count(name: str, panel: str, text: str) -> Any:
    return whole_option(name, 1, MOST, rich_help_panel=panel, help=text)


@dataclass(frozen=True)
class LayerOptions(ShapedOptions):
    """Options of the verbs that measure layers. A verb that leaves one out has its default."""

    models: Annotated[
        str | None,
        _text(
            "--models",
            LAYER,
            "Models, comma-separated, as for `linbench run --model`; default: all that are registered.",
            "NAMES",
        ),
    ] = None
    suite: Annotated[
        str | None,
        _text(
            "--suite",
            LAYER,
            "Measure the layers of a suite's cells, such as zoo; --models chooses among them.",
            "SUITE",
        ),
    ] = None
    form: Annotated[
        str | None, _text("--form", LAYER, "native or controlled; default: native, or the suite's own.")
    ] = None
    set_: Annotated[
        list[str] | None, _text("--set", LAYER, "A setting of the layers: model.NAME.", "NAME=VALUE")
    ] = None
    preset: Annotated[
        str | None,
        _text("--preset", SHAPE, "tiny, benchmark, lm or long; default: tiny on a CPU, else benchmark."),
    ] = None
    lengths: Annotated[
        str | None, _text("--lengths", SHAPE, "Tokens of a sequence, such as 256,4096.", "NUMBERS")
    ] = None
    tokens: Annotated[
        int | None, _count("--tokens", SHAPE, "Tokens of a batch, the same at every length.")
    ] = None
    batch: Annotated[int | None, _count("--batch", SHAPE, "Sequences decoded at once, beside one alone.")] = (
        None
    )
    d_model: Annotated[int | None, _count("--d-model", SHAPE, "Width of the layer.")] = None
    heads: Annotated[
        int | None, _count("--heads", SHAPE, "Number of heads; layers without heads ignore it.")
    ] = None
    peer: Annotated[
        str | None,
        _text(
            "--peer",
            TIMING,
            "fla, transformers or sdpa: measure its layer too, in turn with linbench's.",
        ),
    ] = None
    repeat: Annotated[
        int | None,
        _count(
            "--repeat",
            TIMING,
            "Calls behind a median, ten times as many for decoding; default: 30, on a CPU 20.",
        ),
    ] = None

    def cases(self, preset: "Preset", device: str) -> "list[LayerCase]":
        """Return a case for each layer at a preset; its question and shape are placeholders."""
        from linbench.bench.presets import layer_cases
        from linbench.experiments.pattern import split_models

        return layer_cases(
            [] if self.models is None else split_models(self.models),
            preset,
            suite=self.suite,
            form=self.form,
            settings=self.settings(),
            device=device,
            precision=self.dtype,
            peer=self.peer,
            repeats=self.repeat,
        )

    def shape(self, device: str, gpu_preset: str) -> "Preset":
        """Return the preset with the given values in place of its own."""
        from linbench.bench.presets import default_preset, resolve_preset

        return resolve_preset(
            self.preset or default_preset(device, gpu_preset),
            d_model=self.d_model,
            heads=self.heads,
            lengths=parse_numbers("--lengths", self.lengths),
            tokens=self.tokens,
            decode_batch=self.batch,
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of --set.

        Raises UserError: a setting of something else than the layer, or one that another option gives too.
        """
        given = {"--set": self.set_, "--d-model": self.d_model, "--heads": self.heads}
        if self.suite and (extra := [option for option, value in given.items() if value]):
            raise UserError(f"--suite says what layers are like; leave out {', '.join(extra)}.")
        settings = parse_settings(self.set_ or [])
        for name in settings:
            if not name.startswith("model."):
                hint = "use model.NAME." if "." in name else f"did you mean model.{name}?"
                raise UserError(f"--set {name} has no effect on a layer; {hint}")
        for option, name in (("--d-model", "model.d_model"), ("--heads", "model.heads")):
            if given[option] and name in settings:
                raise UserError(f"{option} and --set {name} say the same; leave out one of them.")
        return settings


CasesOfVerb = Callable[["Callable[[Preset], list[LayerCase]]", "Preset"], "list[LayerCase]"]
"""A function from layers at a preset, and the preset, to the cases of a verb."""

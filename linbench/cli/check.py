"""`linbench check`: is this mixer sound?"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli import completion
from linbench.cli.options import JsonOption, parse_settings
from linbench.common.errors import EXIT_NO, UserError
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.experiments.cell import Cell
    from linbench.verify.check import Finding


def check(
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.models,
            help="A name, NAME\\[setting=value], ./file.py:Class or package.module:Class.",
        ),
    ],
    form: Annotated[str, typer.Option(help="native or controlled.")] = "native",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Of the model: model.NAME.")
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Also train it on mqar quick, which takes about a minute.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put a mixer through the laws that any must keep: causality, streaming, gradients, state size, stability
    and more, a row each with what was found.

    It is built as the first of two layers, in float32 and, if it takes that, float64 on the CPU, with the
    weights it starts with; what starts at zero is drawn. Where it computes in less than float64 it is held to
    the rounding of that. Causality and the batch's neighbours are looked at as in training, too, and these,
    streaming and the chunkwise form in the second layer as well. Exit code 1 if any law is broken. What a
    mixer does not declare is no fault; nor is it, with --learn, that one without a convolution or a token
    shift does not learn, since two layers that see no neighbours are too slow to: --form controlled brings a
    convolution.
    """
    from linbench.engine.layer_under_test import MOST_FLOATS, NEUTRAL_PRESET, LayerUnderTest
    from linbench.experiments.pattern import split_models
    from linbench.experiments.plan import plan
    from linbench.experiments.run_spec import RunSpec
    from linbench.report.terminal import show
    from linbench.verify.check import check as examine
    from linbench.verify.learning import learns

    if len(given := split_models(model)) > 1:
        raise UserError(
            f"check takes one model at a time, not '{model}'; check {' and '.join(given)} one by one."
        )

    def planned(preset: str) -> "Cell":
        settings = parse_settings(set_ or [])
        spec = RunSpec("mqar", [model], preset=preset, form=form, settings=settings, device="cpu")
        (cell,) = plan(spec)
        return cell

    cell = planned(NEUTRAL_PRESET)
    if len({layer.entry.name for layer in cell.model.layers}) > 1:
        raise UserError(f"'{model}' is a pattern of several mixers; check them one by one.")
    subject = LayerUnderTest(cell)
    if (size := subject.size() or 0) > MOST_FLOATS:
        raise UserError(
            f"a layer of '{model}' has {size:,} parameters and floats of state with these settings; a check"
            f" takes {MOST_FLOATS:,} at most."
        )

    def tell_law(finding: "Finding") -> None:
        tell(f"{finding.law}: {finding.verdict}")

    findings = examine(subject, tell_law)
    if learn and findings[0].ok:  # what cannot be built cannot learn
        findings.append(learns(planned("quick")))
        tell_law(findings[-1])
    wrong = [finding for finding in findings if not finding.ok]
    if as_json:
        print(
            json.dumps(
                {
                    "model": model,
                    "form": form,
                    "ok": not wrong,
                    "laws": [finding._asdict() for finding in findings],
                }
            )
        )
    else:
        show(
            ["law", "verdict", "found"],
            [[f.law, f.verdict, f.found] for f in findings],
            left=("law", "verdict", "found"),
        )
    if wrong:
        for finding in wrong:
            tell(f"linbench: {finding.law} is broken. It asks: {finding.asks}")
        raise typer.Exit(EXIT_NO)

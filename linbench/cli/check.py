"""The verb `linbench check`: whether a mixer is sound."""

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
            metavar="MODEL",
            autocompletion=completion.models,
            help="A name, NAME\\[setting=value], ./file.py:Class, package.module:Class, or a pattern.",
        ),
    ],
    form: Annotated[str, typer.Option(help="native or controlled.")] = "native",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the model: model.NAME."),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Also train it on mqar quick, a minute or more.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Test a mixer for the laws that every mixer must keep, one row for each with what was measured.

    The laws are causality, streaming, gradients, state size, stability and more. Of a pattern or a named
    system each different layer is tested alone. A mixer is built as the first of two layers, on the CPU, in
    float32 and, if it takes that, float64. It has its initial weights, but those that start at zero are drawn
    at random. A mixer that computes in less than float64 is held to the rounding of its own precision.
    Causality and independence of the batch are also tested in training mode. Both of them, streaming and the
    chunkwise form are also tested in the second layer. A layer that linbench does not ship runs in a process
    of its own: a law at which it crashes, or takes more than five minutes, counts as broken.

    The exit code is 1 if any law is broken. A mixer may leave out what it does not declare. With --learn, one
    without a convolution or token shift may fail to learn, since two layers that see no neighbours learn too
    slowly; --form controlled adds a convolution. One whose forget gates start by forgetting within a few
    tokens may fail, too; --set model.forget_bias=6 starts them open.
    """
    from linbench.engine.layer_under_test import MOST_FLOATS, NEUTRAL_PRESET, different_layers
    from linbench.experiments.pattern import split_models
    from linbench.experiments.plan import plan
    from linbench.experiments.run_spec import RunSpec
    from linbench.report.terminal import show
    from linbench.verify.check import check as examine
    from linbench.verify.check import check_apart
    from linbench.verify.learning import learns

    models = split_models(model)
    if len(models) > 1:
        raise UserError(
            f"check takes one model at a time, not '{model}'; check {' and '.join(models)} one by one."
        )

    def plan_cell(preset: str) -> "Cell":
        settings = parse_settings(set_ or [])
        spec = RunSpec("mqar", [model], preset=preset, form=form, settings=settings, device="cpu")
        (cell,) = plan(spec)
        return cell

    subjects = different_layers(plan_cell(NEUTRAL_PRESET))
    for subject in subjects.values():
        size = subject.size() or 0
        if size > MOST_FLOATS:
            raise UserError(
                f"a layer of '{model}' has {size:,} parameters and floats of state with these settings; a"
                f" check takes {MOST_FLOATS:,} at most."
            )

    def tell_law(finding: "Finding") -> None:
        tell(f"{finding.law}: {finding.verdict}")

    findings: list[Finding] = []
    built = True
    for name, subject in subjects.items():
        found = (examine if subject.layer.entry.shipped else check_apart)(subject, tell_law)
        built = built and found[0].ok
        if len(subjects) > 1:
            found = [one._replace(law=f"{name}: {one.law}") for one in found]
        findings += found
    if learn and built:  # what cannot be built cannot learn
        findings.append(learns(plan_cell("quick")))
        tell_law(findings[-1])
    wrong = [finding for finding in findings if not finding.ok]
    if as_json:
        laws = [finding._asdict() for finding in findings]
        print(json.dumps({"model": model, "form": form, "ok": not wrong, "laws": laws}))
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

"""`linbench figures`: stored results as pictures."""

import json
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import JsonOption, ResultsOption, warn_ignored_files
from linbench.common.streams import tell
from linbench.report.figures import figure_names


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help=f"Names of figures; default: all. {', '.join(figure_names())}."
        ),
    ] = None,
    results: ResultsOption = Path("results"),
    to: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="DIR", help="Folder to write to; default: figures, in the results folder."
        ),
    ] = None,
    formats: Annotated[
        str, typer.Option(metavar="NAMES", help="Formats to draw in, comma-separated: png, svg, pdf.")
    ] = "png,svg",
    as_json: JsonOption = False,
) -> None:
    """Draw stored results as pictures, each with its caption in a text file beside it."""
    from linbench.common.errors import unknown
    from linbench.report.data import ReportData
    from linbench.report.figure import FORMATS, save
    from linbench.report.figures import drawings
    from linbench.results.reference import place_beside, store_at

    chosen_formats = [name.strip().lower() for name in formats.split(",")]
    for kind, names_given, allowed in (
        ("figure", names or [], figure_names()),
        ("format", chosen_formats, FORMATS),
    ):
        for name in names_given:
            if name not in allowed:
                raise unknown(kind, name, allowed)
    store, folder = store_at(results), to or place_beside(results, "figures", "--save")
    data = ReportData.from_kinds(store.by_kind())
    warn_ignored_files(store.set_aside)
    files: list[Path] = []
    not_drawn = []
    groups = {name: [name] for name in names or []} or {"a figure": figure_names()}
    for words, figures_of_group in groups.items():
        new_files = save(drawings(data, figures_of_group), folder, chosen_formats)
        files += new_files
        if not new_files:
            not_drawn.append(words)
    if as_json:
        print(json.dumps([{"file": str(path)} for path in files]))
    else:
        print(*files, sep="\n", end="\n" if files else "")
    if not_drawn:
        tell(f"linbench: the results in {results} have nothing that {' or '.join(not_drawn)} shows.")

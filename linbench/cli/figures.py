"""`linbench figures`: stored results as pictures."""

from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import ResultsOption, tell_set_aside


def figures(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which figures; all when none is named.")] = None,
    results: ResultsOption = Path("results"),
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write to; default: figures in the results folder.")] = None,
    formats: Annotated[str, typer.Option(metavar="NAMES", help="Of png, svg and pdf, with commas between.")] = "png,svg",
) -> None:
    """Draw stored results, as pictures with a caption beside each."""
    from linbench.common.errors import unknown
    from linbench.report.figures import FIGURES
    from linbench.report.pictures import FORMATS, save_figures
    from linbench.results import comparisons
    from linbench.store import Store

    wanted = [name.strip().lower() for name in formats.split(",")]
    for kind, given, allowed in (("figure", names or [], list(FIGURES)), ("format", wanted, list(FORMATS))):
        for name in given:
            if name not in allowed:
                raise unknown(kind, name, allowed)
    store = Store(results)
    found = comparisons(store.all())
    tell_set_aside(store.set_aside)
    for path in save_figures(found, save or results / "figures", names or tuple(FIGURES), wanted):
        print(path)

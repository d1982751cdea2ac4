"""`linbench figures`: stored results as pictures."""

from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import ResultsOption, tell_set_aside


def figures(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which figures; all when none is named.")] = None,
    results: ResultsOption = Path("results"),
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write to; default: figures in the results folder.")] = None,
) -> None:
    """Draw stored results, as PNG and SVG with a caption beside."""
    from linbench.common.errors import unknown
    from linbench.report.figures import FIGURES, save_figures
    from linbench.results import comparisons
    from linbench.store import Store

    for name in names or []:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES)
    store = Store(results)
    found = comparisons(store.all())
    tell_set_aside(store.set_aside)
    for path in save_figures(found, save or results / "figures", names or tuple(FIGURES)):
        print(path)

"""`linbench report`: stored results as one page of HTML."""

from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import ResultsOption, tell_set_aside


def report(
    results: ResultsOption = Path("results"),
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write; default: report.html in the results folder.")] = None,
) -> None:
    """Write all tables and figures of stored results, cards of the models, environment and failures as one HTML file that needs no network."""
    from linbench.report.page import save_page
    from linbench.store import Store

    store, path = Store(results), save or results / "report.html"
    save_page(store, path)
    tell_set_aside(store.set_aside)
    print(path)

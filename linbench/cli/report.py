"""`linbench report`: stored results as one page of HTML."""

import json
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import JsonOption, ResultsOption, warn_ignored_files
from linbench.common.streams import tell


def report(
    results: ResultsOption = Path("results"),
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; default: report.html in the results folder."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write everything that stored results say as one HTML file that needs no network.

    It begins with a summary and a ranking. Tables, figures, speeds, verdicts on claims (also by results in
    folders below), cards of the models, environments and failures follow.
    """
    from linbench.claims.report_section import claim_sections
    from linbench.claims.stored_results import Stored
    from linbench.report.page.page import page, save_page
    from linbench.results.record import benchmark_results
    from linbench.results.reference import place_beside, store_at, stores_below
    from linbench.results.store import CELL, PROBE, SPEED, SWEEP

    store, path = store_at(results), save or place_beside(results, "report.html", "--save")
    stores = [] if store.read_only else stores_below(results)
    store = next((below for below in stores if below.folder == store.folder), store)
    stored = Stored([store, *(below for below in stores if below is not store)])
    kinds = stored.by_folder.get(store.folder) or store.by_kind()
    unreadable = [path for read in stored.stores for path in read.unreadable]
    aside = [str(path.relative_to(store.folder)) for path in unreadable]
    title = results.name if store.read_only else store.folder.resolve().name
    save_page(
        path,
        lambda: page(
            kinds[CELL],
            title=title,
            aside=aside,
            speeds=kinds[SPEED],
            benched=benchmark_results(kinds),
            sweeps=kinds[SWEEP],
            pretrained=kinds[PROBE],
            claims=claim_sections(stored),
        ),
    )
    warn_ignored_files(stored.set_aside)
    others = len(kinds[SPEED]) + len(benchmark_results(kinds)) + len(kinds[SWEEP]) + len(kinds[PROBE])
    count = len(kinds[CELL]) + others
    if not count:
        tell(f"linbench: there are no results in {results}; the page has none of its own.")
    if as_json:
        print(json.dumps({"file": str(path), "results": count, "set_aside": aside}))
    else:
        print(path)

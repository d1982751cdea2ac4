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
    from linbench.results.store import CELL, SPEED

    store, path = store_at(results), save or place_beside(results, "report.html", "--save")
    stores = [] if store.read_only else stores_below(results)
    store = next((one for one in stores if one.folder == store.folder), store)
    stored = Stored([store, *(other for other in stores if other is not store)])
    kept, aside = (
        stored.by_folder[store.folder],
        [str(one.relative_to(store.folder)) for other in stored.stores for one in other.unreadable],
    )
    title = results.name if store.read_only else store.folder.resolve().name
    save_page(
        path,
        lambda: page(
            kept[CELL],
            title=title,
            aside=aside,
            speeds=kept[SPEED],
            benched=benchmark_results(kept),
            claims=claim_sections(stored),
        ),
    )
    warn_ignored_files(stored.set_aside)
    count = len(kept[CELL]) + len(kept[SPEED]) + len(benchmark_results(kept))
    if not count:
        tell(f"linbench: there are no results in {results}; the page has none of its own.")
    print(json.dumps({"file": str(path), "results": count, "set_aside": aside}) if as_json else path)

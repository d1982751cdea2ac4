"""`linbench figures`: stored results as pictures."""

import json
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import JsonOption, ResultsOption, tell_set_aside
from linbench.common.streams import tell


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which figures; all when none is named.")
    ] = None,
    results: ResultsOption = Path("results"),
    to: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="DIR", help="Folder to write to; default: figures in the results folder."
        ),
    ] = None,
    formats: Annotated[
        str, typer.Option(metavar="NAMES", help="Of png, svg and pdf, with commas between.")
    ] = "png,svg",
    as_json: JsonOption = False,
) -> None:
    """Draw stored results, as pictures with a caption beside each."""
    from linbench.common.errors import unknown
    from linbench.report.figure import FORMATS, save, save_figures
    from linbench.report.figures import FIGURES
    from linbench.report.figures.benchmarks import BENCH_NAMES, bench_drawings
    from linbench.report.figures.layer_speeds import NAMES, speed_drawings
    from linbench.results.comparison import comparisons
    from linbench.results.record import benched
    from linbench.results.reference import place_beside, store_at
    from linbench.results.store import CELL, SPEED

    every, wanted = (*FIGURES, *NAMES, *BENCH_NAMES), [name.strip().lower() for name in formats.split(",")]
    for kind, given, allowed in (("figure", names or [], every), ("format", wanted, FORMATS)):
        for name in given:
            if name not in allowed:
                raise unknown(kind, name, allowed)
    store, folder = store_at(results), to or place_beside(results, "figures", "--save")
    kept = store.by_kind()
    tell_set_aside(store.set_aside)
    found = comparisons(kept[CELL])
    written: list[Path] = []
    nothing = []
    for what, chosen in {name: (name,) for name in names or []}.items() or [("a figure", every)]:
        of_speeds = speed_drawings(kept[SPEED], found, [name for name in chosen if name in NAMES])
        of_speeds += bench_drawings(benched(kept), [name for name in chosen if name in BENCH_NAMES])
        drawn = [
            *save_figures(found, folder, [name for name in chosen if name in FIGURES], wanted),
            *save(of_speeds, folder, wanted),
        ]
        written += drawn
        if not drawn:
            nothing.append(what)
    if as_json:
        print(json.dumps([{"file": str(path)} for path in written]))
    else:
        print(*written, sep="\n", end="\n" if written else "")
    if nothing:
        tell(f"linbench: the results in {results} have nothing that {' or '.join(nothing)} shows.")

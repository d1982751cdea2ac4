"""What the verbs of `linbench bench` do once they know what is asked."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli.options import tell_set_aside
from linbench.common import escape
from linbench.common.errors import EXIT_CELLS_FAILED
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.bench.case import Asked
    from linbench.report.style.wording import Words
    from linbench.results.record import Result
    from linbench.results.store import Store

SHAPE, LAYER, TIMING = "Shape", "Layer", "Measuring"

DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", rich_help_panel=SHAPE, help="bf16 or fp32; default: fp32 on a CPU, else bf16."),
]
DeviceOption = Annotated[
    str, typer.Option("--device", rich_help_panel=TIMING, help="auto, cpu, cuda or cuda:N.")
]
AgainOption = Annotated[
    bool, typer.Option("--again", rich_help_panel=TIMING, help="Measure anew what was measured before.")
]


def measured(
    cases: "Sequence[Asked]",
    tables: "Callable[[Sequence[Result]], Sequence[Words]]",
    *,
    results: Path,
    again: bool,
    as_json: bool,
    more: "Callable[[list[Result], Store], None] | None" = None,
) -> None:
    """Measure, or read what was measured, and print it as `linbench table` does.

    Args:
        more: what else is found of them, and kept.
    """
    from linbench.bench.run import run
    from linbench.report.tables.comparison import LEFT
    from linbench.report.terminal import show
    from linbench.results.reference import store_at

    store = store_at(results)
    found = run(cases, store, again=again, tell=tell)
    if more is not None:
        more(found, store)
    tell_set_aside(store.set_aside)
    if as_json:
        print(json.dumps(found))
    else:
        shown = tables(found)
        for table in shown:
            print(f"{escape.one_line(table.title)}\n")
            show(list(table.frame.columns), table.frame.to_numpy().tolist(), left=LEFT)
            print()
        print("\n".join(dict.fromkeys(escape.one_line(table.caption) for table in shown)))
    if bad := [result for result in found if result["status"] == "failed"]:
        tell(
            f"linbench: {len(bad)} of {len(found)} could not be measured; the first: {bad[0]['label']}:"
            f" {bad[0]['reason']}."
        )
        raise typer.Exit(EXIT_CELLS_FAILED)

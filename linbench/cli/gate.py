"""`linbench gate`: candidate results against a baseline."""

import json
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import JsonOption, Shown, ShownOption, tell_set_aside
from linbench.common.streams import tell

EXAMPLES = """
Examples:

  linbench gate --baseline base/results --candidate head/results

  linbench gate --baseline base/results --candidate head/results --policy gate.yaml --format markdown
"""


def gate(
    baseline: Annotated[Path, typer.Option(metavar="DIR", help="Folder of result files of what stands.")],
    candidate: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of result files of what is to take its place.")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML: drop, alpha, seeds, bimodal, slower, may_differ (docs/ci.md)."
        ),
    ] = None,
    format_: ShownOption = Shown.terminal,
    as_json: JsonOption = False,
) -> None:
    """Say whether candidate results are worse than a baseline, cell by cell, whatever code they ran.

    Exit code 0: none is. 4: a mean fell by more than two points, and that is shown among all cells. 5: cells
    are missing, environments differ in what matters, or a cell cannot be red, as not even a fall to chance
    would be shown by so few seeds. Speeds that `linbench bench` has stored on both sides are shown beside,
    and gated where the policy says how much slower they may be.
    """
    from linbench.report.tables.gate import (
        COLUMNS,
        LEFT,
        SPEEDS,
        outcome,
        page,
        plain,
        rows,
        sentences,
        speeds,
    )
    from linbench.report.terminal import show
    from linbench.results.gate import gate as compare
    from linbench.results.gate_policy import load
    from linbench.results.reference import store_at
    from linbench.results.store import CELL, SPEED

    rule = load(policy)
    stores = store_at(baseline, "--baseline"), store_at(candidate, "--candidate")
    before, after = (store.by_kind() for store in stores)
    found = compare(
        before[CELL],
        after[CELL],
        rule,
        speeds=(before[SPEED], after[SPEED]),
        unreadable=[path.name for path in stores[0].set_aside],
    )
    tell_set_aside({path: why for store in stores for path, why in store.set_aside.items()})
    if as_json:
        print(json.dumps(plain(found, rule)))
    elif format_ is Shown.markdown:
        print(page(found, rule))
    else:
        for columns, lines in ((COLUMNS, rows(found)), (SPEEDS, speeds(found))):
            if lines:
                show(columns, lines, left=LEFT)
    for sentence in sentences(found):
        tell(f"linbench: {sentence}")
    tell(f"linbench: {outcome(found)}")
    raise typer.Exit(found.exit_code)


gate.__doc__ = (gate.__doc__ or "") + EXAMPLES

"""`linbench gate`: candidate results against a baseline."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from linbench.cli.options import JsonOption, warn_ignored_files
from linbench.cli.pages import write_text
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.results.gate import Gate
    from linbench.results.gate_policy import Policy

EXAMPLES = """
Examples:

  linbench gate --baseline base/results

  linbench gate --baseline base/results --candidate head/results

  linbench gate --baseline base/results --candidate head/results --policy gate.yaml --format markdown

  linbench gate --baseline base/results --candidate head/results --format comment --save gate.md
"""


class GateFormat(StrEnum):
    """The format in which a gate's verdict is printed."""

    terminal = "terminal"
    markdown = "markdown"
    comment = "comment"


def gate(
    baseline: Annotated[Path, typer.Option(metavar="DIR", help="Results of the baseline.")],
    candidate: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Results of the candidate. Without it, see what the baseline could show of one.",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "YAML file with drop, alpha, correction, seeds, bimodal, slower or may_differ (see"
                " docs/ci.md)."
            ),
        ),
    ] = None,
    format_: Annotated[
        GateFormat,
        typer.Option(
            "--format",
            help=(
                "terminal; markdown, all of it; or comment, a few lines for a pull request with all else"
                " folded."
            ),
            rich_help_panel="Results",
        ),
    ] = GateFormat.terminal,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Markdown file for all of it, too, whatever is printed.",
            rich_help_panel="Results",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare candidate results with a baseline, cell by cell, and fail if one is worse.

    Exit code 0: no cell is worse. 4: a mean fell by more than two points, significantly so among all cells.
    5: the two cannot be compared, since cells are missing, environments differ in what matters, or there are
    too few seeds to show even a fall to chance. Speeds that `linbench bench` stored on both sides are shown,
    too, and gated if the policy says how much slower they may be.

    Without a candidate nothing is compared. The table shows for each cell the smallest fall that these seeds
    would show, before anything of a candidate runs. It takes the noise from the baseline's twins, results
    with a tiny `protocol.jitter`; without twins it takes the worst case.
    """
    from linbench.common.files import check_writable
    from linbench.report.tables.gate import (
        cell_table,
        learning_table,
        outcome,
        page,
        sentences,
        speed_table,
        to_json,
    )
    from linbench.report.tables.gate_comment import comment
    from linbench.results.gate import gate as compare
    from linbench.results.gate_policy import load
    from linbench.results.reference import store_at
    from linbench.results.store import CELL, SPEED

    if save is not None:
        check_writable(save, "cannot write", "--save")
    rule = load(policy)
    stores = [store_at(baseline, "--baseline")]
    if candidate is not None:
        stores.append(store_at(candidate, "--candidate"))
    kinds = [store.by_kind() for store in stores]
    old, new = kinds[0], kinds[-1]
    judgement = compare(
        old[CELL],
        None if candidate is None else new[CELL],
        rule,
        speeds=(old[SPEED], new[SPEED]),
        unreadable=[path.name for path in stores[0].set_aside],
    )
    warn_ignored_files(stores[0].set_aside | stores[-1].set_aside)
    if candidate is None:
        _foresee(judgement, rule, format_, save, as_json=as_json)
    if save is not None:
        write_text(save, f"{page(judgement, rule)}\n")
    if as_json:
        print(json.dumps(to_json(judgement, rule)))
    elif format_ is GateFormat.markdown:
        print(page(judgement, rule))
    elif format_ is GateFormat.comment:
        print(comment(judgement, rule))
    else:
        for table in (cell_table(judgement), learning_table(judgement), speed_table(judgement)):
            if table.rows:
                table.show()
    for sentence in sentences(judgement):
        tell(f"linbench: {sentence}")
    tell(f"linbench: {outcome(judgement)}")
    raise typer.Exit(judgement.exit_code)


def _foresee(
    judgement: "Gate", rule: "Policy", format_: GateFormat, save: Path | None, *, as_json: bool
) -> NoReturn:
    """Show what a baseline could show of a candidate, given the baseline gated against itself, and exit."""
    from linbench.report.tables.gate import foresight_json, foresight_table

    table = foresight_table(judgement, rule)
    markdown = f"{table.body()}\n\n{table.caption}"
    if save is not None:
        write_text(save, f"{markdown}\n")
    if as_json:
        print(json.dumps(foresight_json(judgement, rule)))
    elif format_ is not GateFormat.terminal:
        print(markdown)
    elif table.rows:
        table.show()
    for sentence in judgement.problems:
        tell(f"linbench: {sentence}")
    raise typer.Exit(judgement.exit_code)


gate.__doc__ = (gate.__doc__ or "") + EXAMPLES

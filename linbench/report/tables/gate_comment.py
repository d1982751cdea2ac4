"""The outcome of a gate as a comment of a few lines, with everything else folded below."""

import re
from collections.abc import Sequence
from math import ceil
from statistics import fmean

from linbench.common import escape
from linbench.common.text import pluralize
from linbench.report.table import Cell, Column, Table
from linbench.report.tables.gate import difference_cell, other_sentences, outcome, page
from linbench.results.gate import Gate
from linbench.results.gate_policy import Policy
from linbench.results.judgement import GateRow, Verdict

MOST_ROWS, MOST_SENTENCES = 5, 2
"""The rows and sentences that a comment shows: with the heads and what would be seen these are ten lines."""

WIDTH = 21
"""The characters of a picture of an interval; odd, so that zero stands in the middle."""

ZERO, LINE, MEAN, NOTHING = "┊─●·"
"""The characters of a picture."""

_PICTURE = re.compile(f"[{ZERO}{LINE}{MEAN}{NOTHING}]{{{WIDTH}}}")

UNCHANGED = (Verdict.ok, Verdict.uninformative)


def comment(found: Gate, policy: Policy) -> str:
    """Return Markdown: the verdict, what changed, what would have been seen, and the whole page folded."""
    said = other_sentences(found)
    lines = [f"### Gate: {escape.markdown(outcome(found))}", ""]
    lines += [f"- {escape.paragraph(sentence)}" for sentence in said[:MOST_SENTENCES]]
    if len(said) > MOST_SENTENCES:
        lines.append(f"- {pluralize(len(said) - MOST_SENTENCES, 'sentence')} more below.")
    changed = sorted(
        (row for row in found.rows if row.verdict not in UNCHANGED), key=lambda row: row.difference.mean
    )
    if changed:
        # characters of one width, as the picture needs them
        lines += ["", _PICTURE.sub(r"`\g<0>`", _table(changed[:MOST_ROWS]).body())]
    seen = _seen(found.rows)
    folded = f"<details><summary>All cells and the rules</summary>\n\n{page(found, policy)}\n</details>"
    return "\n".join([*lines, "", *([seen, ""] if seen else []), folded]) + "\n"


def _table(rows: Sequence[GateRow]) -> Table:
    reach = ceil(20 * max(max(-row.difference.low, row.difference.high) for row in rows)) / 20 or 0.05
    columns = (
        Column("cell", numeric=False),
        Column("baseline"),
        Column("chance"),
        Column("change, 95 %"),
        Column(f"-{reach:.2f} to +{reach:.2f}", numeric=False),
        Column("verdict", numeric=False),
    )
    return Table("", columns, tuple(_row(row, reach) for row in rows))


def _row(row: GateRow, reach: float) -> tuple[Cell, ...]:
    pair, change = row.pair, row.difference
    before = fmean(pair.baseline)
    return (
        Cell(pair.name),
        Cell(f"{before:.3f}", before),
        Cell(f"{pair.chance:.3f}", pair.chance),
        difference_cell(change),
        Cell(interval_picture(change.low, change.mean, change.high, reach)),
        Cell(str(row.verdict)),
    )


def interval_picture(low: float, mean: float, high: float, reach: float) -> str:
    """Return an interval as characters, on a scale from -reach to reach with zero in the middle."""

    def place(value: float) -> int:
        return max(0, min(WIDTH - 1, round((value / reach + 1) / 2 * (WIDTH - 1))))

    drawn = [NOTHING] * WIDTH
    drawn[place(0.0)] = ZERO
    drawn[place(low) : place(high) + 1] = LINE * (place(high) - place(low) + 1)
    drawn[place(mean)] = MEAN
    return "".join(drawn)


def _seen(rows: Sequence[GateRow]) -> str:
    """Return what falls these seeds would have shown; empty if no cell could show any."""
    falls = sorted(row.visible for row in rows if row.visible is not None and row.pair.learned_counts is None)
    if not falls:
        return ""
    between = f"{falls[0]:.3f}" if falls[0] == falls[-1] else f"{falls[0]:.3f} to {falls[-1]:.3f}, by cell,"
    return f"With these seeds a fall of {between} would very likely be seen."

"""What a gate found, in words."""

from typing import Any

from linbench.common.words import counted
from linbench.gate import Gate, Judged
from linbench.policy import Policy
from linbench.report.lines import markdown, probability

LEFT = {"cell", "verdict", "marks"}
COLUMNS = ["cell", "baseline", "candidate", "difference", "seeds", "p", "verdict", "marks"]


def rows(found: Gate, policy: Policy) -> list[list[str]]:
    """One for every cell that was gated."""
    return [_row(one, policy) for one in found.judged]


def _row(one: Judged, policy: Policy) -> list[str]:
    pair, difference = one.pair, one.difference
    before, after = (_side(side, pair.learnt) for side in (pair.baseline, pair.candidate))
    interval = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    verdict = "RED" if one.red else "fell, not shown" if difference.mean < -policy.drop else "ok"
    return [pair.name, before, after, interval, str(len(pair.candidate)), probability(one.counted), verdict, "; ".join(one.marks)]


def _side(values: Any, learnt: float | None) -> str:
    mean = f"{sum(values) / len(values):.3f}"
    return mean if learnt is None else f"{mean} ({sum(value >= learnt for value in values)} learnt)"


def sentences(found: Gate) -> list[str]:
    """What is red, what could not be compared, and what is new."""
    new = [f"Not gated, as the baseline does not have them: {'; '.join(found.new)}."] if found.new else []
    return [*map(_red, found.red), *found.problems, *new]


def _red(one: Judged) -> str:
    pair, gone = one.pair, f"p = {one.counted:.2g} among all cells that are gated"
    if pair.counts is not None:
        before, after = pair.counts
        return f"{pair.name} got worse: {before} of {len(pair.baseline)} seeds learnt it before, {after} of {len(pair.candidate)} do now ({gone})."
    was, now = (sum(side) / len(side) for side in (pair.baseline, pair.candidate))
    return f"{pair.name} got worse: accuracy was {was:.3f} and is {now:.3f} over {len(pair.candidate)} seeds ({gone})."


def outcome(found: Gate) -> str:
    """All in one sentence."""
    worse, short = len(found.red), len(found.problems)
    parts = [f"{worse} worse than the baseline"] * bool(worse) + [f"{counted(short, 'reason')} why it is not comparable"] * bool(short)
    return f"{counted(len(found.judged), 'cell')} gated, {' and '.join(parts) or 'none worse than the baseline'}."


def caption(policy: Policy) -> str:
    """The rule."""
    return (
        f"A cell is red if mean test accuracy falls by more than {policy.drop:.3g} and that is shown at {policy.alpha:g} among all cells that are gated: by "
        "Welch's one-sided t, or where the policy says that seeds either learn or do not, by Fisher's exact test on how many do; p is by Holm's correction. "
        "Difference: candidate less baseline, with its own 95 % interval. Marks excuse nothing, as both sides had the same budget. Diverged runs are chance."
    )


def page(found: Gate, policy: Policy) -> str:
    """In Markdown."""
    table = markdown(COLUMNS, rows(found, policy), left=LEFT) if found.judged else "No cell could be gated."
    said = "".join(f"- {sentence}\n" for sentence in sentences(found))
    return f"### Gate: {outcome(found)}\n\n{said}\n{table}\n\n{caption(policy)}\n"


def plain(found: Gate, policy: Policy) -> dict[str, Any]:
    """As JSON values."""
    cells = [
        {
            "cell": one.pair.name,
            "baseline": list(one.pair.baseline),
            "candidate": list(one.pair.candidate),
            "difference": one.difference.mean,
            "interval": [one.difference.low, one.difference.high],
            "learnt": one.pair.counts,
            "p": one.p,
            "p_holm": one.counted,
            "red": one.red,
            "marks": list(one.marks),
        }
        for one in found.judged
    ]
    return {"exit_code": found.exit_code, "policy": policy.model_dump(mode="json"), "cells": cells, "problems": list(found.problems), "new": list(found.new)}

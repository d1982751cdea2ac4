"""The outcome of a gate: tables, sentences, and a page of Markdown."""

from collections.abc import Sequence
from math import inf
from statistics import fmean
from typing import Any

from linbench.common import escape
from linbench.common.text import pluralize
from linbench.report.style.wording import equal, million_tokens, probability, thousands
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.results.gate import Gate
from linbench.results.gate_policy import Policy
from linbench.results.gate_times import LaterRow
from linbench.results.judgement import GateRow, SeedPair, Verdict
from linbench.results.matching import SIDES
from linbench.results.power import POWER
from linbench.results.speed_gate import SpeedRatio
from linbench.results.speed_labels import TIMING_LABELS
from linbench.results.statistics import Difference
from linbench.results.survival import Median

CORRECTIONS = {"holm": "of Holm", "fdr": "of Benjamini and Hochberg"}

CELL_COLUMNS = (
    Column("cell", numeric=False),
    Column("baseline"),
    Column("candidate"),
    Column("difference"),
    Column("seeds"),
    Column("noise"),
    Column("would show"),
    Column("p"),
    Column("verdict", numeric=False),
    Column("marks", numeric=False),
)

LEARNING_COLUMNS = (
    Column("tokens to learn", numeric=False),
    Column("baseline"),
    Column("candidate"),
    Column("p"),
    Column("verdict", numeric=False),
)

SPEED_COLUMNS = (
    Column("speed", numeric=False),
    Column("baseline"),
    Column("candidate"),
    Column("times as long"),
    Column("verdict", numeric=False),
    Column("marks", numeric=False),
)


def cell_table(found: Gate) -> Table:
    """Return a table with a row for every cell that was gated."""
    return Table("", CELL_COLUMNS, tuple(map(_cell_row, found.rows)))


def learning_table(found: Gate) -> Table:
    """Return a table with a row for every bimodal cell whose tokens to learn were compared."""
    return Table("", LEARNING_COLUMNS, tuple(map(_learning_row, found.times)))


def speed_table(found: Gate) -> Table:
    """Return a table with a row for every call that was timed on both sides."""
    return Table("", SPEED_COLUMNS, tuple(map(_speed_row, found.speeds)))


def _cell_row(one: GateRow) -> tuple[Cell, ...]:
    pair = one.pair
    before, after = (_accuracies(side, pair.learned_from) for side in (pair.baseline, pair.candidate))
    verdict = str(one.verdict)
    if one.verdict is Verdict.powerless and one.seeds_needed:
        verdict += f" with fewer than {one.seeds_needed} seeds"
    return (
        Cell(pair.name),
        before,
        after,
        difference_cell(one.difference),
        Cell(str(len(pair.candidate)), len(pair.candidate)),
        _noise(pair),
        _visible(one),
        Cell(probability(one.adjusted_p), one.adjusted_p),
        Cell(verdict),
        Cell("; ".join(one.marks)),
    )


def difference_cell(difference: Difference) -> Cell:
    """Return a difference with its interval."""
    interval = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    return Cell(interval, difference.mean)


def _accuracies(values: Sequence[float], learnt: float | None) -> Cell:
    """Return the mean accuracy of a side, and the number of its seeds that learned the task."""
    mean = fmean(values)
    count = "" if learnt is None else f" ({sum(value >= learnt for value in values)} learnt)"
    return Cell(f"{mean:.3f}{count}", mean)


def _noise(pair: SeedPair) -> Cell:
    """Return the standard deviation of the difference between both runs of a seed, and its source."""
    if pair.learned_counts is not None:
        return NO_VALUE
    deviation = pair.noise.spread**0.5
    return Cell(f"{deviation:.3f} ({pair.noise.source})", deviation)


def _visible(one: GateRow) -> Cell:
    """Return the smallest fall that would be red; of a bimodal cell, to how many seeds that learn."""
    if one.visible is None:
        return NO_VALUE
    counts = one.pair.learned_counts
    return Cell(f"-{one.visible:.3f}" if counts is None else f"{counts[0]} to {one.visible:g}", one.visible)


def _learning_row(one: LaterRow) -> tuple[Cell, ...]:
    return (
        Cell(one.pair.name),
        *(Cell(_median(middle), middle.time) for middle in one.pair.medians),
        Cell(probability(one.adjusted_p), one.adjusted_p),
        Cell("RED" if one.red else "not shown to learn later"),
    )


def _median(middle: Median) -> str:
    """Return the tokens after which half of the seeds had learned."""
    return million_tokens(middle.time) if middle.time < inf else "never"


def _speed_row(one: SpeedRatio) -> tuple[Cell, ...]:
    least, most = one.ratio_bounds
    return (
        Cell(f"{one.name}, {TIMING_LABELS[one.timing]}"),
        Cell(thousands(one.baseline), one.baseline.median),
        Cell(thousands(one.candidate), one.candidate.median),
        Cell(f"{one.ratio:.2f} [{least:.2f}, {most:.2f}]", one.ratio),
        Cell(_speed_verdict(one)),
        Cell("; ".join(one.marks)),
    )


def _speed_verdict(one: SpeedRatio) -> str:
    least, most = one.ratio_bounds
    if one.red:
        return "RED"
    if one.marks:
        return "not judged"
    if least > 1:
        return "slower"
    return "faster" if most < 1 else "no difference shown"


def sentences(found: Gate) -> list[str]:
    """Return sentences on what is red, what could not be compared, and what is new."""
    return [*map(_red, found.red), *other_sentences(found)]


def other_sentences(found: Gate) -> list[str]:
    """Return sentences on slower calls, what could not be compared, and what is new."""
    silent = [one.pair.name for one in found.rows if one.verdict is Verdict.uninformative]
    told = any(one.verdict is not Verdict.uninformative for one in found.rows)
    idle = [f"Uninformative, as both sides are at chance: {'; '.join(silent)}."] if silent and told else []
    left = [sentence for sentence in found.untimed if sentence not in found.problems]
    others = (
        [f"Of the baseline {pluralize(len(left), 'speed')} cannot be compared; the first: {left[0]}"]
        if left
        else []
    )
    new = [f"Not gated, as the baseline does not have them: {'; '.join(found.new)}."] if found.new else []
    return [*map(_later, found.later), *map(_slow, found.slower), *found.problems, *idle, *others, *new]


def _later(one: LaterRow) -> str:
    pair, gone = one.pair, f"p {equal(one.adjusted_p)} among all tests of the gate"
    before, after = (middle.time for middle in pair.medians)
    if before < after < inf:
        took = f"half of the seeds had learnt it after {million_tokens(before)} tokens"
        return f"{pair.name} learns later: {took}, and now after {million_tokens(after)} ({gone})."
    (old, new), of = pair.learned, len(pair.baseline)
    return f"{pair.name} learns later or never: {old} of {of} seeds learnt it before, {new} do now ({gone})."


def _slow(one: SpeedRatio) -> str:
    least, most = one.ratio_bounds
    return (
        f"{one.name} got slower: it takes {one.ratio:.2f} times as long ({least:.2f} to {most:.2f} by the"
        f" fifths), and the policy lets {one.allowed:g} pass."
    )


def _red(one: GateRow) -> str:
    pair, gone = one.pair, f"p {equal(one.adjusted_p)} among all cells that are gated"
    if one.diverges:
        before, after = pair.diverged
        return (
            f"{pair.name} got worse: {before} of {len(pair.baseline)} seeds diverged before, {after} of"
            f" {len(pair.candidate)} do now ({gone})."
        )
    if pair.learned_counts is not None:
        before, after = pair.learned_counts
        return (
            f"{pair.name} got worse: {before} of {len(pair.baseline)} seeds learnt it before, {after} of"
            f" {len(pair.candidate)} do now ({gone})."
        )
    was, now = (sum(side) / len(side) for side in (pair.baseline, pair.candidate))
    return (
        f"{pair.name} got worse: accuracy was {was:.3f} and is {now:.3f} over {len(pair.candidate)} seeds"
        f" ({gone})."
    )


def outcome(found: Gate) -> str:
    """Return the outcome in one sentence."""
    worse, later = len(found.red), len(found.later)
    slower, short = len(found.slower), len(found.problems)
    parts = [f"{worse} worse than the baseline"] * bool(worse)
    parts += [f"{later} learning later"] * bool(later)
    parts += [f"{pluralize(slower, 'speed')} lower than allowed"] * bool(slower)
    parts += [f"{pluralize(short, 'reason')} why the sides cannot be compared"] * bool(short)
    timed = [one for one in found.speeds if one.allowed is not None and not one.marks]
    silent = sum(one.verdict is Verdict.uninformative for one in found.rows)
    cells = f"{pluralize(len(found.rows), 'cell')}{f' ({silent} uninformative)' if silent else ''}"
    gated = [cells, *([pluralize(len(timed), "speed")] if timed else [])]
    return f"{' and '.join(gated)} gated, {' and '.join(parts) or 'none worse than the baseline'}."


def caption(policy: Policy) -> str:
    """Return the rule by which cells are judged."""
    return (
        f"A cell is red if mean test accuracy falls by more than {policy.drop:.3g} and the fall is"
        f" significant at {policy.alpha:g} among all gated cells: by the one-sided t-test for pairs of runs"
        " of one seed or, where the policy says that seeds either learn or do not, by Fisher's exact test on"
        " how many do, and by the log-rank test of tokens to learn where the policy says so. p is"
        f" after the correction {CORRECTIONS[policy.correction]}. Difference is"
        " candidate minus baseline, with its own 95 % interval. Noise: the standard deviation of the"
        " difference between both runs of a seed, as measured here, or, if that is more, of runs that differ"
        " by a trifle in their first weights (twins); or of runs that have nothing in common (worst case)."
        f" Would show: the smallest fall that is red with a probability of {100 * POWER:g} % with this noise,"
        " or to how many seeds that learn. A marked cell is judged like any other, as both sides had the same"
        " budget. Diverged runs count as chance. A cell cannot be red if with these seeds not even a fall of"
        " all to chance would be significant. It is uninformative if both sides are at chance."
    )


def speed_caption(policy: Policy) -> str:
    """Return the rule by which speeds are judged."""
    rule = "Speeds are shown and never red, as the policy does not gate them"
    if policy.slower is not None:
        rule = (
            f"A speed is red if the candidate takes more than {policy.slower:g} times as long and the middle"
            " three fifths of the calls of both sides do not overlap"
        )
    return (
        f"{rule}. Speeds are thousand tokens per second of one layer alone, as `linbench bench` stored them:"
        " the median ± half the distance from the slowest fifth of the calls to the fastest. Times as long"
        " compares medians, and in brackets the fifths: at the least and at the most. A speed that was"
        " measured on a busy or throttled device on either side is not judged."
    )


def page(found: Gate, policy: Policy) -> str:
    """Return the outcome as Markdown: sentences, tables, and the rules below them."""
    table = cell_table(found).body() if found.rows else "No cell could be gated."
    said = "".join(f"- {escape.paragraph(sentence)}\n" for sentence in sentences(found))
    learnt = f"\n{learning_table(found).body()}\n" if found.times else ""
    timed = f"\n{speed_table(found).body()}\n\n{speed_caption(policy)}\n" if found.speeds else ""
    head = f"### Gate: {escape.markdown(outcome(found))}"
    return f"{head}\n\n{said}\n{table}\n{learnt}\n{caption(policy)}\n{timed}"


def foresight_table(found: Gate, policy: Policy) -> Table:
    """Return what the baseline could show of a candidate: for each cell the smallest fall that would be red.

    Args:
        found: the baseline gated against itself.
        policy: the rules.
    """
    table = cell_table(found)
    places = [table.names.index(name) for name in ("cell", "baseline", "seeds", "noise", "would show")]
    columns = tuple(table.columns[place] for place in places)
    return Table(
        "", columns, tuple(tuple(row[place] for place in places) for row in table.rows), caption(policy)
    )


def foresight_json(found: Gate, policy: Policy) -> dict[str, Any]:
    """Return `foresight_table` as JSON values, with why cells could show nothing."""
    told = to_json(found, policy)
    cells = [
        {name: cell[name] for name in ("cell", "baseline", "noise", "would_show")}
        | {"learnt": cell["learnt"] and cell["learnt"][0]}
        for cell in told["cells"]
    ]
    return {name: told[name] for name in ("exit_code", "policy", "problems")} | {"cells": cells}


def to_json(found: Gate, policy: Policy) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    cells = [
        {
            "cell": one.pair.name,
            "baseline": list(one.pair.baseline),
            "candidate": list(one.pair.candidate),
            "difference": one.difference.mean,
            "interval": [one.difference.low, one.difference.high],
            "learnt": one.pair.learned_counts,
            "diverged": list(one.pair.diverged),
            "p": one.p,
            "p_adjusted": one.adjusted_p,
            "red": one.red,
            "verdict": one.verdict.value,
            "can_be_red": one.red or one.can_be_red,
            "seeds_needed": one.seeds_needed,
            "noise": {"sd": one.pair.noise.spread**0.5, "source": one.pair.noise.source},
            "would_show": one.visible,
            "chance": one.pair.chance,
            "marks": list(one.marks),
        }
        for one in found.rows
    ]
    timed = [
        {
            "speed": one.name,
            "timing": one.timing,
            "baseline": one.baseline._asdict(),
            "candidate": one.candidate._asdict(),
            "times_as_long": one.ratio,
            "between": list(one.ratio_bounds),
            "red": one.red,
            "marks": list(one.marks),
        }
        for one in found.speeds
    ]
    return {
        "exit_code": found.exit_code,
        "policy": policy.model_dump(mode="json"),
        "cells": cells,
        "tokens_to_learn": [
            {
                "cell": one.pair.name,
                **{
                    side: middle.time if middle.time < inf else None
                    for side, middle in zip(SIDES, one.pair.medians, strict=True)
                },
                "p": one.pair.p,
                "p_adjusted": one.adjusted_p,
                "red": one.red,
            }
            for one in found.times
        ],
        "speeds": timed,
        "problems": list(found.problems),
        "untimed": list(found.untimed),
        "new": list(found.new),
    }

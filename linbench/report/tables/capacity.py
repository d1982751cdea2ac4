"""Tables of capacity: the pairs that each variant holds, and how many for a thousand floats of state."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from linbench.common.files import file_name
from linbench.report.data import ReportData
from linbench.report.style.wording import three_digits, training
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.report.tables import TableKind
from linbench.results.capacity import (
    LEARNED_FROM,
    LEVELS,
    SEEDS,
    SEEDS_WHERE_TWO_VALUED,
    Capacity,
    Ranks,
    capacities,
    rank_intervals,
)
from linbench.results.comparison import Comparison, law_warning
from linbench.results.falling_curve import CONFIDENCE, Crossing
from linbench.results.separate_capacity import SeparateCapacities, separate_capacities

HIGH, LOW = LEVELS


def capacity_tables(data: ReportData) -> list[Table]:
    """Return a table for each comparison whose tests have several numbers of pairs.

    Tables of comparisons that differ in the number of pairs, with a model of its own for each, follow.
    """
    apart = separate_capacities(data.comparisons)
    return [
        *(_mixed(comparison, found) for comparison in data.comparisons if (found := capacities(comparison))),
        *map(_apart, apart),
    ]


TABLES = TableKind("capacity", capacity_tables, order=15)


class Line(NamedTuple):
    """A variant with its place."""

    found: Capacity
    ranks: Ranks | None


def _mixed(comparison: Comparison, found: Sequence[Capacity]) -> Table:
    """Return the table of models that were each tested with several numbers of pairs."""
    name, about = f"{comparison.title}, {comparison.form}", training(comparison)
    return _table(comparison, found, name=name, about=about, slug=f"{comparison.slug}-capacity")


def _apart(group: SeparateCapacities) -> Table:
    """Return the table of variants of which a model was trained for each number of pairs."""
    last = group.comparisons[-1]
    about = (
        f"A model of its own was trained for each number of pairs ({', '.join(map(str, group.pairs))}); with"
        f" the most: {training(last)}"
    )
    slug = file_name(f"{last.task}-{last.key[:8]}-{last.form}-capacity")
    return _table(last, group.found, name=f"{last.task}, each apart, {last.form}", about=about, slug=slug)


def _table(comparison: Comparison, found: Sequence[Capacity], *, name: str, about: str, slug: str) -> Table:
    """Return a table of capacities, the most pairs per float first.

    Args:
        comparison: that the capacities are of, or one of several.
        found: the capacities, in order.
        name: of what was compared.
        about: the setting.
        slug: the name of the files.
    """
    lines = [Line(*pair) for pair in zip(found, rank_intervals(found, HIGH), strict=True)]
    words = f"{about} {caption(found)} {law_warning([one.row for one in found])}".rstrip()
    made = Table(
        f"Capacity: {name}",
        (
            Column("model", numeric=False),
            Column(f"pairs per 1,000 floats at {HIGH:.0%}"),
            Column("rank"),
            Column(f"pairs at {HIGH:.0%}"),
            Column(f"pairs at {LOW:.0%}", optional=2),
            Column(f"pairs per 1,000 floats at {LOW:.0%}", optional=1),
            Column("recurrent floats"),
            Column("seeds"),
            Column("missing", hide_empty=True),
            Column("learned"),
            Column(f"pairs at {HIGH:.0%} if learned", hide_empty=True),
            Column("marks", numeric=False, hide_empty=True),
        ),
        tuple(map(_row, lines)),
        words,
        slug,
        records=[_record(line) for line in lines],
        device=comparison.device,
        latex_caption=words,
    )
    shown = made.without_empty()
    return replace(made, columns=shown.columns, rows=shown.rows)


def caption(found: Sequence[Capacity]) -> str:
    """Return what the columns of a table of capacities mean."""
    fewest, most = found[0].pairs[0], found[0].pairs[-1]
    return (
        "Recall is accuracy scaled so that chance is 0 and a perfect score 1. Pairs at"
        f" {HIGH:.0%} are those at which the mean recall over seeds falls to {HIGH:g}, on a line between"
        " two tests over the logarithm of their pairs; where recall rises from test to test, the line is a"
        f" least-squares fit that does not. >= {most}: it does not fall so far; < {fewest}: it is below with"
        f" the fewest pairs. Brackets: {CONFIDENCE:.0%} interval by a bootstrap over seeds. Runs that"
        " diverged count as chance. Floats are those that the recurrence carries, all layers, without"
        f" convolutions{_matching(found)}; grows: there is a cache, which grows with the sequence, up to its"
        f" window if it has one. Rank: the range of ranks by pairs per 1,000 floats at {HIGH:.0%} in the"
        " bootstrap; what holds all pairs has no order. Learned: seeds that recall the fewest pairs at least"
        f" at {LEARNED_FROM:.0%}. Missing: seeds that the interval lacks, of {SEEDS}, or of"
        f" {SEEDS_WHERE_TWO_VALUED} where some have learned and others have not."
    )


def _matching(found: Sequence[Capacity]) -> str:
    """Return how far recurrent floats differ, where there are several variants that have some."""
    floats = [one.recurrent_floats for one in found if one.recurrent_floats]
    if len(floats) < 2:
        return ""
    return f" (they differ by {max(floats) / min(floats) - 1:.1%})"


def _row(line: Line) -> tuple[Cell, ...]:
    found, ranks = line
    learned = found.held_by_learned(HIGH)
    held = {level: found.held(level) for level in LEVELS}
    return (
        Cell(found.row.label),
        _held(found, held[HIGH], per_thousand=True),
        NO_VALUE if ranks is None else Cell(str(ranks), ranks.best),
        _held(found, held[HIGH]),
        _held(found, held[LOW]),
        _held(found, held[LOW], per_thousand=True),
        _floats(found),
        Cell(str(found.seeds), found.seeds),
        Cell(str(found.missing_seeds or ""), found.missing_seeds),
        Cell(f"{sum(found.learned)}/{found.seeds}", sum(found.learned) / found.seeds),
        Cell("") if learned is None else _held(found, learned),
        Cell(", ".join(found.row.marks)),
    )


def _floats(found: Capacity) -> Cell:
    """Return the recurrent floats, or why a variant has no number of them."""
    floats, size = found.recurrent_floats, found.row.size
    if floats is not None:
        return Cell(f"{floats:,}", floats)
    if size["state_total"] is None:
        return Cell("undeclared")
    return Cell("grows" if size["state_cache"] else "none")


def _held(found: Capacity, held: Crossing, *, per_thousand: bool = False) -> Cell:
    """Return pairs, or pairs for each thousand floats, with their interval."""
    if per_thousand and found.recurrent_floats is None:
        return NO_VALUE
    words = held_words(found, held, per_thousand=per_thousand)
    pairs = found.per_thousand(held.load) if per_thousand else held.load
    return Cell(words, pairs if pairs and math.isfinite(pairs) else None)


def held_words(found: Capacity, held: Crossing, *, per_thousand: bool = False) -> str:
    """Return pairs in words: `41.3 [35.0, 52.1]`, `>= 512 [433, >= 512]`, `< 16`."""

    def number(pairs: float) -> str:
        within = min(max(pairs, found.pairs[0]), found.pairs[-1])
        value = found.per_thousand(within) if per_thousand else within
        sign = "< " if pairs == 0 else ">= " if math.isinf(pairs) else ""
        if sign and not per_thousand:
            return f"{sign}{within:,.0f}"
        return f"{sign}{three_digits(value or 0.0)}"

    if held.low is None or held.high is None:
        return number(held.load)
    low, high = number(held.low), number(held.high)
    censored = low == high and low[0] in "<>"
    return number(held.load) if censored else f"{number(held.load)} [{low}, {high}]"


def _record(line: Line) -> dict[str, Any]:
    """Return a variant as values for a program."""
    found, ranks = line
    size = found.row.size
    return {
        "model": found.row.label,
        **{name: value for level in LEVELS for name, value in _numbers(found, level).items()},
        "rank_best": ranks and ranks.best,
        "rank_worst": ranks and ranks.worst,
        "state_recurrent": size["state_recurrent"],
        "state_cache": size["state_cache"],
        "seeds": found.seeds,
        "seeds_missing": found.missing_seeds,
        "seeds_learned": sum(found.learned),
        "marks": ", ".join(found.row.marks),
    }


def _numbers(found: Capacity, level: float) -> dict[str, Any]:
    """Return the pairs held at a level with their interval.

    A number is None where it lies beyond the tests; the words say on which side.
    """
    held = found.held(level)
    pairs = [None if not one or math.isinf(one) else one for one in held]
    shares = [found.per_thousand(one) for one in pairs]
    values: dict[str, Any] = {}
    for name, (estimate, low, high) in (("pairs", pairs), ("pairs_per_1000_floats", shares)):
        at = f"{name}_at_{100 * level:.0f}"
        values |= {at: estimate, f"{at}_low": low, f"{at}_high": high}
    return values | {f"pairs_at_{100 * level:.0f}_words": held_words(found, held)}

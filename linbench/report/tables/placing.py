"""Table of the places of one model among all others that were asked the same."""

from collections.abc import Sequence

from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.report.tables.profile import heading, meaning, words
from linbench.results.placing import Overall, Placing
from linbench.results.ranks import FEWEST_TASKS
from linbench.results.reliability import FEWEST_MODELS

CAPTION = (
    "Brackets: 95 % interval. Where intervals overlap, a model has a range of ranks, 1 the best. {meanings}"
)

OVERALL = (
    "Over {tasks} tasks it has place {place} of the {of} models that were asked them all, by mean rank"
    " ({mean:.1f}). Two models are told apart if their mean ranks differ by {difference:.1f} or more"
    " (Nemenyi)."
)

ALONE = (
    f"There is no place over all tasks: that needs {FEWEST_TASKS} tasks, and {FEWEST_MODELS} models that were"
    " asked them all."
)


def placing_table(found: Sequence[Placing], place: Overall | None, label: str) -> Table:
    """Return the table of the places of a model, one row for each quantity."""
    said = {heading(one.facet): meaning(one.facet) for one in found}
    meanings = " ".join(f"{name[0].upper()}{name[1:]}: {words}." for name, words in said.items())
    overall = OVERALL.format(**place._asdict()) if place else ALONE
    return Table(
        f"The place of {label} among all that were asked the same",
        (
            Column("task", numeric=False),
            Column("quantity", numeric=False),
            Column("estimate", numeric=False),
            Column("rank"),
            Column("of"),
            Column("best", numeric=False, optional=1),
            Column("marks", numeric=False, hide_empty=True),
        ),
        tuple(map(_row, found)),
        f"{overall} {CAPTION.format(meanings=meanings)}",
    )


def _row(one: Placing) -> tuple[Cell, ...]:
    facet = one.facet
    best = facet.ordered[0]
    comparison = facet.comparison
    return (
        Cell(comparison.title) if comparison else NO_VALUE,
        Cell(heading(facet)),
        Cell(words(facet, facet.estimates[one.label])),
        Cell(str(one.ranks)),
        Cell(str(one.of), one.of),
        Cell(f"{best}: {words(facet, facet.estimates[best])}"),
        Cell("; ".join(one.marks)),
    )

"""Tables of searches for learning rates: what the choice was worth on other seeds, and what it cost."""

from collections.abc import Sequence
from dataclasses import asdict

from linbench.report.table import NO_VALUE, Cell, Column, Records, Table
from linbench.report.tables import comparison_kind
from linbench.results.comparison import Comparison
from linbench.results.searches import SearchOutcome, search_outcomes

COLUMNS = (
    Column("model", numeric=False),
    Column("learning rate"),
    Column("tuning score"),
    Column("reported score"),
    Column("optimism"),
    Column("tuning seeds", optional=2),
    Column("rates", optional=1),
    Column("runs"),
    Column("tokens"),
)

CAPTION = (
    "The learning rate of each model is the one with the highest tuning score: validation accuracy at the"
    " end of training, the mean over tuning seeds. Reported score is the same of the seeds that are reported,"
    " at that rate; of a ladder it is that of the rung on which the rate was chosen. Optimism is the tuning"
    " score less the reported score. Runs and tokens are what a search cost: all tuning seeds at all rates"
    " that were tried, each run up to its last evaluation, and a rung from where the one below leaves off."
    " –: not known."
)


def search_table(comparison: Comparison) -> Table | None:
    """Return a row for each search of a comparison; None if no learning rate was searched for."""
    outcomes = [outcome for row in comparison.rows for outcome in search_outcomes(row)]
    if not outcomes:
        return None
    return Table(
        f"{comparison.title}, {comparison.form}: search for learning rates",
        COLUMNS,
        tuple(map(_row, outcomes)),
        f"{CAPTION} {_cost(outcomes)}",
        f"{comparison.slug}-search",
        records=_records(outcomes),
        device=comparison.device,
    )


TABLES = comparison_kind("search for learning rates", search_table, order=16)


def _cost(outcomes: Sequence[SearchOutcome]) -> str:
    """Return in a sentence what all searches cost, as far as is known."""
    known = [outcome.tokens for outcome in outcomes if outcome.tokens is not None]
    least = "" if len(known) == len(outcomes) else "at least "
    runs = sum(outcome.runs for outcome in outcomes)
    return f"All searches of this table took {runs:,} runs and {least}{sum(known):,} tokens."


def _row(outcome: SearchOutcome) -> tuple[Cell, ...]:
    def number(value: float | None, form: str) -> Cell:
        return NO_VALUE if value is None else Cell(format(value, form), value)

    return (
        Cell(outcome.model),
        number(outcome.learning_rate, "g"),
        number(outcome.tuning_score, ".3f"),
        number(outcome.reported_score, ".3f"),
        number(outcome.optimism, "+.3f"),
        number(len(outcome.tuning_seeds), "d"),
        number(outcome.rates, "d"),
        number(outcome.runs, ",d"),
        number(outcome.tokens, ",d"),
    )


def _records(outcomes: Sequence[SearchOutcome]) -> Records:
    return [
        {
            **asdict(outcome),
            "optimism": outcome.optimism,
            "tuning_seeds": " ".join(map(str, outcome.tuning_seeds)),
        }
        for outcome in outcomes
    ]

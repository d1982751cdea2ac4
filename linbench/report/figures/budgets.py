"""Accuracy against the budget, from the rungs of ladders."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.colors import Style
from linbench.report.style.labels import Named, chance_line, label_lines, unmeasured
from linbench.report.style.layout import draw_panels
from linbench.report.style.lines import marker_face, styled
from linbench.report.style.wording import HOLLOW, SHADES, million_tokens
from linbench.results.budgets import CONFIDENCE, BudgetScore, budget_scores, has_budgets
from linbench.results.comparison import Comparison, Row

APART = 0.4
"""The part of the way from a budget to the next over which models stand side by side."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel of lines for all models, or one for each generation."""
    return draw_panels(sheet, comparison, draw_budgets)


def draw_budgets(axes: Axes, comparison: Comparison) -> bool:
    """Draw test accuracy against the tokens of each rung; return whether any model has several."""
    ends, missing, ticks = list[Named](), list[str](), set[int]()
    axes.set_xscale("log", base=2)
    of_rows = budget_scores(comparison.rows)
    for place, (row, style) in enumerate(styled(comparison.rows)):
        scores = of_rows[place]
        if not scores:
            missing.append(unmeasured(row))
            continue
        aside = 2 ** (APART * (place - (len(of_rows) - 1) / 2) / len(of_rows))
        _draw_row(axes, row, style, scores, aside)
        ends.append(Named(scores[-1].mean, aside * scores[-1].tokens, row.label, style.colour))
        ticks.update(score.tokens for score in scores)
    axes.set(xlabel="budget in tokens", ylabel="test accuracy", ylim=(-0.02, 1.04))
    chance_line(axes, comparison.results[0]["chance"])
    label_lines(axes, ends, missing)
    axes.set_xticks(sorted(ticks), [million_tokens(count) for count in sorted(ticks)])
    axes.minorticks_off()
    return bool(ends)


def _draw_row(axes: Axes, row: Row, style: Style, scores: Sequence[BudgetScore], aside: float) -> None:
    """Draw the line of a model with its intervals.

    Args:
        axes, row, style: to draw on, the model, and how its line looks.
        scores: at rising budgets.
        aside: the factor by which it is moved aside.
    """
    tokens = [aside * score.tokens for score in scores]
    axes.plot(
        tokens,
        [score.mean for score in scores],
        color=style.colour,
        linestyle=style.dash,
        marker=style.mark,
        markersize=4.5,
        markerfacecolor=marker_face(row, style.colour),
    )
    for at, score in zip(tokens, scores, strict=True):
        if score.interval:
            axes.vlines(at, *score.interval, color=style.colour, linewidth=0.8)


FIGURE = ComparisonFigure(
    name="budgets",
    order=16,
    draw=draw,
    applies=lambda comparison: has_budgets(comparison.rows),
    uses_tests=True,
    shows_chance=True,
    caption=f"""Test accuracy against the budget of training, from the rungs of ladders: mean over seeds, with
        a bar for its {100 * CONFIDENCE:g} % interval by Student's t; models stand side by side at a budget. A
        ladder that ended before a budget counts with its last rung, and a line ends where a seed whose ladder
        may go on has no rung yet. {HOLLOW} {SHADES}""",
)

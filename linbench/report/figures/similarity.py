"""Recall against how much keys are alike."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.labels import GUIDE
from linbench.report.style.layout import draw_panels
from linbench.report.style.lines import Point, draw_lines
from linbench.report.style.wording import HOLLOW, SEED_LINES, SHADES
from linbench.results.comparison import Comparison
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracies_by_test

SIMILARITY, CLUSTER = "similarity", "cluster"
"""The settings that say what the cosine of two keys of a cluster is, and how many keys a cluster has."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel of lines for all models, or one for each generation."""
    return draw_panels(sheet, comparison, draw_recall)


def draw_recall(axes: Axes, comparison: Comparison) -> bool:
    """Draw accuracy against similarity, and the share of a cluster; return whether any model has one."""

    def points(result: CellResult) -> list[Point] | None:
        accuracies = accuracies_by_test(result)
        return None if accuracies is None else sorted(zip(similarities(result), accuracies, strict=True))

    drawn = draw_lines(axes, comparison, points, "accuracy")
    found = sorted(similarities(comparison.results[0]))
    axes.set_xticks(found, [f"{cosine:g}" for cosine in found])
    axes.set_xlabel("similarity: cosine of two keys of a cluster")
    size = comparison.results[0]["cell"]["task"]["test"][0]["settings"].get(CLUSTER)
    if isinstance(size, int) and size > 1:
        axes.axhline(1 / size, color=GUIDE, linewidth=0.6, zorder=0)
        across = axes.get_yaxis_transform()
        axes.text(0.01, 1 / size, "1 / cluster", color=GUIDE, fontsize=7.5, va="bottom", transform=across)
    return drawn


def similarities(result: CellResult) -> list[float]:
    """Return the similarity of each test, in their order; none unless tests differ in that and no more."""
    tests = [dict(test["settings"]) for test in result["cell"]["task"].get("test", [])]
    found = [value for test in tests if isinstance(value := test.pop(SIMILARITY, None), int | float)]
    several = len(found) == len(set(found)) == len(tests) > 1
    return found if several and all(test == tests[0] for test in tests) else []


FIGURE = ComparisonFigure(
    name="similarity",
    order=57,
    draw=draw,
    applies=lambda comparison: bool(similarities(comparison.results[0])),
    uses_tests=True,
    shows_chance=True,
    caption=f"""Test accuracy against the cosine of two keys of a cluster. The grey line is one over the
        number of keys in a cluster: what a layer recalls that finds the cluster of a key, and no more.
        {SEED_LINES} {HOLLOW} {SHADES}""",
)

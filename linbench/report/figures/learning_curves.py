"""Learning curves: validation accuracy over training."""

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from linbench.report.figures.curves import face, over_seeds, styled
from linbench.report.style.labels import Named, beside, chance, unmeasured
from linbench.results.comparison import Comparison
from linbench.results.record import FINAL


def learning_curves(axes: Axes, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen. A run that diverged counts as chance from there on. A hollow
    end: in no verdict."""
    ends, missing = [], []
    for row, (colour, dash, mark) in styled(comparison.rows):
        counted = [result for result in row.results if result["status"] in FINAL]
        longest: list[dict[str, float]] = max((result["curve"] for result in counted), key=len, default=[])
        if not longest:
            missing.append(unmeasured(row))
            continue
        curves = [[point["accuracy"] for point in result["curve"]] for result in counted]
        padded = [
            curve + [result["chance"]] * (len(longest) - len(curve))
            for curve, result in zip(curves, counted, strict=True)
        ]
        tokens = [point["tokens"] for point in longest]
        mean = over_seeds(axes, tokens, padded, colour, models=len(comparison.rows))
        axes.plot(tokens, mean, color=colour, linestyle=dash)
        axes.plot(
            tokens[-1:],
            mean[-1:],
            marker=mark,
            markersize=4.5,
            color=colour,
            markerfacecolor=face(row, colour),
        )
        ends.append(Named(mean[-1], tokens[-1], row.label, colour))
    axes.set(xlabel="tokens seen in training", ylabel="validation accuracy", ylim=(-0.02, 1.04))
    chance(axes, comparison.results[0]["chance"])
    beside(axes, ends, missing)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} M" if value else "0"))
    return bool(ends)

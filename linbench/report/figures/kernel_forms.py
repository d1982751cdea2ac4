"""Speeds of a kernel's forms beside each other."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linbench.report.figure import Drawing
from linbench.report.figures.speed_axes import _scales
from linbench.report.style.labels import Named, beside, titled
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.tables.kernel_forms import Ladder
from linbench.results.record import fingerprint


def _of_forms(ladder: Ladder) -> Drawing:
    def draw(figure: Figure) -> bool:
        columns = len(ladder.head_dims)
        figure.set_size_inches((PANEL_INCHES + 1.2) * columns, 3.5)
        panels = list(figure.subplots(1, columns, squeeze=False, sharey=True).flat)
        ends = [
            gains(axes, ladder, dim, labelled=axes is panels[0])
            for axes, dim in zip(panels, ladder.head_dims, strict=True)
        ]
        for axes, own in zip(panels, ends, strict=True):
            beside(axes, own)
        titled(figure, f"{ladder.label}, forward and backward: {ladder.about}")
        return True

    return Drawing(ladder.slug, draw, ladder.caption, fingerprint(ladder.results))


def gains(axes: Axes, ladder: "Ladder", head_dim: int, *, labelled: bool) -> list[Named]:
    """How many times as fast as token by token every form is, for one head dimension. The ends as of
    `against_length`."""
    ends = []
    for form, colour in zip(ladder.forms, _FORMS, strict=False):
        if found := ladder.gains(form, head_dim):
            axes.plot(list(found), list(found.values()), color=colour, marker="o", markersize=3.2)
            length, gain = list(found.items())[-1]
            ends.append(Named(gain, length, ladder.words[form], colour))
    _scales(
        axes,
        sorted({at for form in ladder.forms for dim in ladder.head_dims for at in ladder.gains(form, dim)}),
    )
    axes.set_ylabel("times as fast as token by token" if labelled else "")
    axes.set_title(f"head dimension {head_dim}", fontsize="medium", loc="left")
    return ends


_FORMS = ("#555555", "#0072B2", "#009E73", "#D55E00", "#CC79A7")
"""Token by token, scan, chunkwise, Triton, and another."""

"""Speeds of the forms of one kernel, beside the slowest form."""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.axes import log_log
from linbench.report.style.labels import Named, add_title, label_lines
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.tables.kernel_forms import FormSpeedups, form_speedups
from linbench.results.record import fingerprint

COLOURS = ("#555555", "#0072B2", "#009E73", "#D55E00", "#CC79A7")
"""The colours of token by token, parallel scan, chunkwise, Triton, and another form."""


def drawings(data: ReportData) -> list[Drawing]:
    """Return a drawing for every layer that was measured with several forms of its kernel."""
    return [
        Drawing(forms.slug, partial(draw, forms=forms), forms.caption, fingerprint(forms.results))
        for forms in form_speedups(data.speeds)
    ]


def draw(sheet: Sheet, forms: FormSpeedups) -> bool:
    """Draw a panel for each head dimension."""
    columns = len(forms.head_dims)
    sheet.set_size_inches((PANEL_INCHES + 1.2) * columns, 3.5)
    panels = list(sheet.subplots(1, columns, squeeze=False, sharey=True).flat)
    ends = [
        draw_gains(axes, forms, dim, labelled=axes is panels[0])
        for axes, dim in zip(panels, forms.head_dims, strict=True)
    ]
    for axes, own in zip(panels, ends, strict=True):
        label_lines(axes, own)
    add_title(sheet, f"{forms.label}, forward and backward: {forms.about}")
    return True


def draw_gains(axes: Axes, forms: FormSpeedups, head_dim: int, *, labelled: bool) -> list[Named]:
    """Draw how many times as fast as token by token every form is, for one head dimension.

    Returns:
        the ends of the lines, for `label_lines` once all panels are drawn.
    """
    ends = []
    for form, colour in zip(forms.forms, COLOURS, strict=False):
        gains = forms.gains(form, head_dim)
        if gains:
            axes.plot(list(gains), list(gains.values()), color=colour, marker="o", markersize=3.2)
            length, gain = list(gains.items())[-1]
            ends.append(Named(gain, length, forms.words[form], colour))
    lengths = {at for form in forms.forms for dim in forms.head_dims for at in forms.gains(form, dim)}
    log_log(axes, sorted(lengths))
    axes.set_ylabel("times as fast as token by token" if labelled else "")
    axes.set_title(f"head dimension {head_dim}", fontsize="medium", loc="left")
    return ends


FIGURE = DataFigure(name="forms", order=210, make=drawings)

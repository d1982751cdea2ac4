"""The rows of `regression` as two panels, and as the figure of them: error against condition, and drift."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FuncFormatter, NullFormatter

from linbench.common.hashing import digest
from linbench.report.figure import Drawing
from linbench.report.style.axes import log_ticks
from linbench.report.style.colors import DASHES, FAMILIES, Style
from linbench.report.style.labels import Named, label_lines
from linbench.verify.regression import MINI_BATCH, NOISE, RULES, TOKENS_PER_DIMENSION
from linbench.verify.update_rules import Row

__all__ = ["Panel", "drawing", "panels", "short"]

SIZE_INCHES = (10.5, 4.0)

_STEP, _SOLVED = FAMILIES["delta rule"], FAMILIES["test-time training"]
STYLES = dict(
    zip(
        RULES,
        (
            Style(FAMILIES["linear attention"], DASHES[0], "o"),
            Style(_STEP, DASHES[0], "s"),
            Style(_STEP, DASHES[1], "^"),
            Style(_STEP, DASHES[2], "D"),
            Style(FAMILIES["gates and decay"], DASHES[0], "D"),
            Style(FAMILIES["softmax revisited"], DASHES[0], "v"),
            *(Style(_SOLVED, dash, "o") for dash in (DASHES[2], DASHES[3], DASHES[1], DASHES[0])),
            Style("#222222", DASHES[0], "s"),
        ),
        strict=True,
    )
)

CAPTION = """
Squared error of what each update rule reads of fresh keys, over the squares of their values, after {tokens}
tokens in {dim} dimensions; nothing is trained. Left: against the condition number of the keys' covariance,
whose axes are random; the map from keys to values stays. Right: against the share of the map that every token
draws anew, at condition number {drift_at:g}. Values have variance 1 and noise of variance {noise:g}. Each
rule has the constants of a grid that are best on other streams of the same kind: its rate or length,
momentum, ridge, and what is kept per token. Averaging is scaled as well as can be. A step of Newton-Schulz
takes {step} tokens. CG: conjugate gradients for every query. Along axes: the preconditioner is diagonal in
the principal axes of the keys.
"""


class Panel(NamedTuple):
    """Errors of every rule against one setting.

    title: what the setting is. at: its values. errors: of each rule, one for each value.
    """

    title: str
    at: list[float]
    errors: dict[str, list[float]]


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Return the error by condition without a drift, and the error by drift."""
    drift_at = next((row["condition"] for row in rows if row["drift"]), None)
    by_condition = [row for row in rows if not row["drift"]]
    by_drift = [row for row in rows if row["condition"] == drift_at]
    found = [_panel("condition number, no drift", "condition", by_condition)]
    if by_drift:
        found.append(_panel(f"drift per token, condition number {drift_at:g}", "drift", by_drift))
    return found


def _panel(title: str, name: str, rows: Sequence[Row]) -> Panel:
    errors: dict[str, list[float]] = {}
    for row in rows:
        errors.setdefault(row["rule"], []).append(row["error"])
    return Panel(title, list(dict.fromkeys(row[name] for row in rows)), errors)


def drawing(rows: Sequence[Row]) -> Drawing:
    """Return the figure of rows of `regression`."""
    found = panels(rows)

    def draw(sheet: Sheet) -> bool:
        sheet.set_size_inches(*SIZE_INCHES)
        grid = sheet.subplots(1, len(found), squeeze=False, sharey=True)
        ends = [_draw(axes, panel) for axes, panel in zip(grid.flat, found, strict=True)]
        grid.flat[0].set_ylabel("relative squared error")
        for axes, names in zip(grid.flat, ends, strict=True):
            label_lines(axes, names)
        return True

    drift_at = next((row["condition"] for row in rows if row["drift"]), 0.0)
    dim = rows[0]["dim"]
    caption = " ".join(CAPTION.split()).format(
        dim=dim, tokens=TOKENS_PER_DIMENSION * dim, drift_at=drift_at, noise=NOISE**2, step=MINI_BATCH
    )
    shown = [
        [
            panel.title,
            panel.at,
            {name: [short(one) for one in errors] for name, errors in panel.errors.items()},
        ]
        for panel in found
    ]
    return Drawing("regression", draw, caption, digest(shown))


def short(error: float) -> str:
    """Return an error in two digits: the last ones differ from machine to machine."""
    return f"{error:.2g}"


def _draw(axes: Axes, panel: Panel) -> list[Named]:
    """Draw a panel whose values stand side by side, evenly; return the ends of lines with their names."""
    places = range(len(panel.at))
    ends = []
    for name, errors in panel.errors.items():
        colour, dash, mark = STYLES[name]
        axes.plot(places, errors, color=colour, linestyle=dash, marker=mark, markersize=3.6)
        ends.append(Named(errors[-1], places[-1], name, colour))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(log_ticks(*axes.get_ylim()))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(places, ["none" if not value else f"{value:g}" for value in panel.at])
    axes.set_xlabel(panel.title)
    return ends

"""Bars of what models answer: the right value, an older one, another key's, or one that never occurred."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.patches import Patch

from linbench.report.style.colors import ink
from linbench.report.style.labels import MISSING
from linbench.report.style.layout import fit_rows

RIGHT = "the last value"

KINDS = {
    RIGHT: ("#EDEDED", ""),
    "the one before": ("#7A0403", ""),
    "between": ("#C6502E", ""),
    "the first": ("#F2A65A", ""),
    "newer": ("#FBE3B4", ""),
    "a like key's": ("#6E93B0", "\\\\\\\\"),
    "another key's": ("#9DB8CC", "////"),
    "of nowhere": ("#3C4A56", ""),
}
"""Kinds of answers with their colours, which differ in lightness, and hatches. No colour is that of a
generation."""

Shares = dict[str, float]
"""The shares of answers by kind."""

DIVERGED = "diverged"
BLANK: dict[str, Any] = {"facecolor": "white", "edgecolor": MISSING, "linewidth": 0.6}
"""The style of the strip of a seed without answers."""

WORTH = 0.0005
"""The least share of a kind in any model that puts the kind into the legend."""

ACROSS = 8
"""The most entries of a legend side by side."""

THICK = 0.78
"""The thickness of a bar, in distances of two bars."""

KINDS_NOTE = (
    "An answer is the last value written to the key that was asked for, another value of that key (the one"
    " before the last, the first, one between these, or a newer one), a value of another key, or a value that"
    " never occurred. If the key has only one older value, that is the one before. Where keys share parts, a"
    " value of a key of the same cluster is told apart."
)
"""The explanation of the kinds, in captions."""


def shares_of(metrics: Mapping[str, float]) -> Shares | None:
    """Return the shares of all answers by `KINDS`, which add up to one; None for metrics without them.

    An older value that is both the one before and the first counts as the one before.
    """
    if not {"accuracy", "stale", "stale_previous", "stale_middle", "cross", "alien"} <= metrics.keys():
        return None
    newer, near = metrics.get("stale_newer", 0.0), metrics.get("near", 0.0)
    first = max(0.0, metrics["stale"] - metrics["stale_previous"] - metrics["stale_middle"] - newer)
    values = (
        metrics["accuracy"],
        metrics["stale_previous"],
        metrics["stale_middle"],
        first,
        newer,
        near,
        metrics["cross"] - near,
        metrics["alien"],
    )
    return dict(zip(KINDS, values, strict=True))


class Answers(NamedTuple):
    """The kinds of answers of a model.

    Attributes:
        name: of the model.
        colour: of its name.
        seeds: the shares, by seed; empty for a model without answers.
        diverged: the number of its seeds that diverged.
        why: stands in place of a bar where there are no answers.
    """

    name: str
    colour: str
    seeds: Sequence[Shares]
    diverged: int
    why: str


def draw_answers(sheet: Sheet, answers: Sequence[Answers]) -> None:
    """Draw a bar for every model, the best above and those without answers below, in grey."""
    found = sorted(answers, key=lambda one: fmean(seed[RIGHT] for seed in one.seeds) if one.seeds else -1.0)
    fit_rows(sheet, [one.name for one in found])
    axes = sheet.add_subplot()
    for height, one in enumerate(found):
        if one.seeds:
            _bar(axes, one, height)
        else:
            axes.text(
                0.5, height, one.why, color=MISSING, style="italic", fontsize=7.5, ha="center", va="center"
            )
    axes.set_yticks(range(len(found)), [one.name for one in found], fontsize=7.5)
    for one, tick in zip(found, axes.get_yticklabels(), strict=True):
        tick.set_color(ink(one.colour) if one.seeds else MISSING)
    _legend(sheet, found)
    axes.grid(False)
    axes.set(xlabel="share of answers", xlim=(0, 1), ylim=(-0.6, len(found) - 0.4))


def _bar(axes: Axes, one: Answers, height: int) -> None:
    """Draw a strip for each seed, the best above; seeds that diverged are blank and below the others."""
    thick = THICK / (one.diverged + len(one.seeds))
    bottoms = [height - THICK / 2 + thick * strip for strip in range(one.diverged + len(one.seeds))]
    axes.barh(bottoms[: one.diverged], 1, thick, align="edge", **BLANK)
    rising = sorted(one.seeds, key=lambda seed: seed[RIGHT])
    for bottom, seed in zip(bottoms[one.diverged :], rising, strict=True):
        _strip(axes, seed, bottom, thick)


def _legend(sheet: Sheet, found: Sequence[Answers]) -> None:
    seeds = [seed for one in found for seed in one.seeds]
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0, label=kind)
        for kind, (colour, hatch) in KINDS.items()
        if any(seed[kind] > WORTH for seed in seeds)
    ]
    if any(one.diverged for one in found):
        handles.append(Patch(**BLANK, label=DIVERGED))
    sheet.legend(
        handles=handles,
        loc="outside lower left",
        ncols=min(len(handles), ACROSS),
        fontsize=7.5,
        columnspacing=1.1,
        handlelength=1.2,
    )


def _strip(axes: Axes, seed: Shares, bottom: float, thick: float) -> None:
    left = 0.0
    for kind, (colour, hatch) in KINDS.items():
        if seed[kind] > 0:
            axes.barh(
                bottom,
                seed[kind],
                thick,
                left=left,
                align="edge",
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
        left += seed[kind]

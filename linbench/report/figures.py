"""Comparisons as figures: what is drawn is stored, and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from linbench.cell import digest
from linbench.report.panels import by_length, by_slice, by_state, learning_curves
from linbench.report.tables import caption
from linbench.results import Comparison, slices
from linbench.store import storage_sentence

PANEL_INCHES = 3.9
"""The width of each of several panels."""

MORE = 4
"""Slices that are drawn beside those with a figure of their own, at most."""


def curves(figure: Figure, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen: the mean over seeds, and the band from the worst to the best of them.

    A run that diverged counts as chance from there on. A hollow end: undertrained.
    """
    return learning_curves(figure.add_subplot(), comparison)


def distance(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the distance that an answer must be carried: the mean over seeds, bars from the worst to the best."""
    return by_slice(figure.add_subplot(), comparison, "distance")


def overwrites(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, and the share of answers that are an older value of what was asked, against how often that had been overwritten: means over
    seeds, bars from the worst to the best."""
    left, right = _beside(figure, 2)
    return by_slice(left, comparison, "overwrites", named=False) and by_slice(right, comparison, "overwrites", "stale")


def lengths(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the length of the tested sequences: the mean over seeds, bars from the worst to the best."""
    return by_length(figure.add_subplot(), comparison)


def state(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the floats that one sequence carries from token to token: the mean over seeds, bars from the worst to the best. A hollow mark:
    undertrained. A colour for each generation, with a shade for each variant."""
    figure.set_size_inches(figure.get_figwidth() + 1.2, max(figure.get_figheight(), 0.17 * len(comparison.rows)))
    return by_state(figure.add_subplot(), comparison)


def others(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against all that it was told apart by besides: the mean over seeds, bars from the worst to the best."""
    found = dict.fromkeys(name for result in comparison.results for name in slices(result) if name not in FIGURES)
    names = list(found)[:MORE]
    panels = _beside(figure, len(names)) if names else []
    drawn = [by_slice(axes, comparison, name, named=axes is panels[-1]) for axes, name in zip(panels, names, strict=True)]
    return any(drawn)


FIGURES: dict[str, Callable[[Figure, Comparison], bool]] = {
    "learning-curves": curves,
    "distance": distance,
    "overwrites": overwrites,
    "lengths": lengths,
    "state": state,
    "slices": others,
}

AFTER_A_RUN = tuple(name for name in FIGURES if name not in {"slices", "state"})


def save_figures(comparisons: Sequence[Comparison], folder: Path, names: Sequence[str] = tuple(FIGURES)) -> list[Path]:
    """PNG and SVG of every figure of every comparison that has what it shows, and its caption beside it.

    The files carry the hash of the results they were drawn from.
    """
    written = []
    with storage_sentence(folder, "cannot draw to"):
        folder.mkdir(parents=True, exist_ok=True)
        for comparison in comparisons:
            for name in names:
                written += _save(comparison, name, folder / f"{comparison.slug}-{name}")
    return written


def _save(comparison: Comparison, name: str, stem: Path) -> list[Path]:
    """One figure with its caption; nothing where there is nothing to draw."""
    drawn_from = digest(sorted(result["id"] for result in comparison.results))
    pictures = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    with _style():
        figure = Figure()
        FigureCanvasAgg(figure)
        if not FIGURES[name](figure, comparison):
            return []
        figure.axes[0].set_title(f"{comparison.title}, {comparison.form} form, {_seeds(comparison)}")
        for picture, without in zip(pictures, (("Software",), ("Date", "Creator")), strict=True):
            figure.savefig(picture, metadata={"Description": drawn_from, **dict.fromkeys(without)})
    text = f"{' '.join((FIGURES[name].__doc__ or '').split())} {caption(comparison)}\nDrawn from results {drawn_from}.\n"
    stem.with_suffix(".txt").write_text(text, encoding="utf-8")
    return [*pictures, stem.with_suffix(".txt")]


def _beside(figure: Figure, count: int) -> list[Axes]:
    """So many panels in a row."""
    figure.set_size_inches(max(PANEL_INCHES * count, figure.get_figwidth()), figure.get_figheight())
    return list(figure.subplots(1, count, squeeze=False)[0])


def _seeds(comparison: Comparison) -> str:
    count = max(len(row.results) for row in comparison.rows)
    return "1 seed" if count == 1 else f"{count} seeds"


@contextmanager
def _style() -> Iterator[None]:
    with as_file(files("linbench.report") / "linbench.mplstyle") as path, mpl.rc_context(fname=path):
        yield

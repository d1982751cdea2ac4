"""Comparisons as figures: what is drawn is stored, and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from linbench.cell import digest
from linbench.models.base import GENERATIONS
from linbench.report.colours import generation
from linbench.report.panels import CROWD, by_length, by_model, by_slice, by_state, learning_curves
from linbench.report.tables import caption
from linbench.results import Comparison, Row, slices
from linbench.store import storage_sentence

PANEL_INCHES = 3.9
"""The width of each of several panels."""

NAME = 20
"""Characters of a model's name for which there is room beside a panel."""

LETTER_INCHES = 0.075
"""For each character more."""

MORE = 4
"""Slices that are drawn beside those with a figure of their own, at most."""


def curves(figure: Figure, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen: the mean over seeds, and each of them thin.

    A run that diverged counts as chance from there on. A hollow end: undertrained, or its learning rate in doubt.
    """
    return _any(learning_curves(axes, part) for part, (axes,) in _panels(figure, comparison))


def distance(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the distance that an answer must be carried: the mean over seeds, and each of them thin."""
    return _any(by_slice(axes, part, "distance") for part, (axes,) in _panels(figure, comparison))


def overwrites(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, and the share of answers that are an older value of what was asked, against how often that had been overwritten: means over
    seeds, and each of them thin."""
    return _any(
        by_slice(left, part, "overwrites", named=False) and by_slice(right, part, "overwrites", "stale")
        for part, (left, right) in _panels(figure, comparison, across=2)
    )


def lengths(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the length of the tested sequences: the mean over seeds, and each of them thin."""
    return _any(by_length(axes, part) for part, (axes,) in _panels(figure, comparison))


def state(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the floats that one sequence carries from token to token: the mean over seeds, bars from the worst to the best; a line through the
    sizes of one model. A hollow mark: undertrained, or its learning rate in doubt. A colour for each generation, with a shade
    for each variant."""
    _for_names(figure, comparison)
    return by_state(figure.add_subplot(), comparison)


def models(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy of every model, the best above: a small dot for each seed, a large one for their mean, hollow where it was undertrained or its learning
    rate was in doubt. A model of several sizes has a dot for each, the larger the more it carries. A colour for each generation,
    with a shade for each variant."""
    _for_names(figure, comparison)
    return len(comparison.rows) > CROWD and by_model(figure.add_subplot(), comparison)


def others(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against all that it was told apart by besides: the mean over seeds, and each of them thin."""
    found = dict.fromkeys(name for result in comparison.results for name in slices(result) if name not in FIGURES)
    names = list(found)[:MORE]
    return _any(
        by_slice(axes, part, name, named=axes is row[-1])
        for part, row in (_panels(figure, comparison, across=len(names)) if names else ())
        for axes, name in zip(row, names, strict=True)
    )


FIGURES: dict[str, Callable[[Figure, Comparison], bool]] = {
    "learning-curves": curves,
    "distance": distance,
    "overwrites": overwrites,
    "lengths": lengths,
    "state": state,
    "models": models,
    "slices": others,
}

AFTER_A_RUN = tuple(name for name in FIGURES if name not in {"slices", "state", "models"})


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
        title = f"{comparison.title}, {comparison.form} form, {_seeds(comparison)}"
        if figure.axes[0].get_title(loc="left"):  # the name of a part
            figure.suptitle(title, x=0.01, ha="left", fontsize="large")
        else:
            figure.axes[0].set_title(title, loc="left")
        for picture, without in zip(pictures, (("Software",), ("Date", "Creator")), strict=True):
            figure.savefig(picture, metadata={"Description": drawn_from, **dict.fromkeys(without)})
    text = f"{' '.join((FIGURES[name].__doc__ or '').split())} {caption(comparison)}\nDrawn from results {drawn_from}.\n"
    stem.with_suffix(".txt").write_text(text, encoding="utf-8")
    return [*pictures, stem.with_suffix(".txt")]


def _panels(figure: Figure, comparison: Comparison, across: int = 1) -> list[tuple[Comparison, list[Axes]]]:
    """`across` panels side by side, for all models, or, where these are a crowd, for those of each generation."""
    parts = _parts(comparison)
    columns = across if across > 1 else min(2, len(parts))
    rows = -(-len(parts) * across // columns)
    width = figure.get_figwidth() if columns == 1 else PANEL_INCHES * columns
    longer = max(0, max(len(row.label) for row in comparison.rows) - NAME)
    width += LETTER_INCHES * longer * (columns if across == 1 else 1)
    figure.set_size_inches(width, figure.get_figheight() * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in panels[len(parts) * across :]:
        figure.delaxes(empty)
    found = []
    for index, (name, part) in enumerate(parts.items()):
        own = panels[index * across : (index + 1) * across]
        own[0].set_title(name, fontsize="medium", loc="left")
        found.append((part, own))
    return found


def _parts(comparison: Comparison) -> dict[str, Comparison]:
    """A crowd of models by their generations, the small ones together; all, without a name, where they are none."""
    if len(comparison.rows) <= CROWD:
        return {"": comparison}
    by_generation: dict[str, list[Row]] = {}
    for row in comparison.rows:
        by_generation.setdefault(generation(row.results[0]), []).append(row)
    order = sorted(by_generation, key=lambda name: GENERATIONS.index(name) if name in GENERATIONS else len(GENERATIONS))
    small = [name for name in order if len(by_generation[name]) <= CROWD // 2]
    parts = {", ".join(small): [row for name in small for row in by_generation[name]]} if small else {}
    parts |= {name: by_generation[name] for name in order if name not in small}
    return {name: replace(comparison, rows=tuple(rows)) for name, rows in parts.items()}


def _any(drawn: Iterable[bool]) -> bool:
    """Whether anything was drawn; every panel is tried."""
    return any(list(drawn))


def _for_names(figure: Figure, comparison: Comparison) -> None:
    """Room for a column with a name for each model."""
    figure.set_size_inches(figure.get_figwidth() + 1.2, max(figure.get_figheight(), 0.17 * len({row.results[0]["label"] for row in comparison.rows})))


def _seeds(comparison: Comparison) -> str:
    count = max(len(row.results) for row in comparison.rows)
    return "1 seed" if count == 1 else f"{count} seeds"


@contextmanager
def _style() -> Iterator[None]:
    with as_file(files("linbench.report") / "linbench.mplstyle") as path, mpl.rc_context(fname=path):
        yield

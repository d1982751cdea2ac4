"""Figures as files: PNG, SVG and PDF that are the same bytes whenever they are drawn from the same results,
each with its caption beside."""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, Formatter, FuncFormatter
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from linbench.common import escape
from linbench.common.files import inside, storage_sentence, unused, write_whole
from linbench.report.figures import FIGURES, draw
from linbench.report.figures.captions import words
from linbench.report.style.labels import LONGEST
from linbench.report.style.svg import plain
from linbench.results.comparison import Comparison

FORMATS = ("png", "svg", "pdf")

USUAL = ("png", "svg")
"""Unless others are asked for."""

MOST_LINES = 40
"""Lines of one text in a figure, at most; more are joined, and then cut."""

QUIET = ("Glyph .* missing from", "constrained_layout not applied")
"""Warnings of what names in letters that the font lacks lead to: a PNG has boxes for them, an SVG has the
letters, and they may be wider than their room."""

COLOURS = 256
"""Of a PNG: a palette takes a third of the space, and no colour is seen to differ."""


class Drawing(NamedTuple):
    """A figure that can be drawn: its name for files, what draws it (False: there is nothing to draw), its
    caption, and the hash of the results that it is drawn from."""

    slug: str
    draw: Callable[[Figure], bool]
    caption: str
    fingerprint: str

    @property
    def about(self) -> str:
        """What each of its files says of where it comes from."""
        return f"Drawn from results {self.fingerprint}"

    def pictures(self, formats: Sequence[str], *, dots: int | None = None) -> dict[str, bytes]:
        """In each of these formats; none where there is nothing to draw. `dots`: of a PNG per inch, where not
        as usual."""
        with style(), warnings.catch_warnings():
            for said in QUIET:
                warnings.filterwarnings("ignore", said)
            mpl.rcParams["savefig.dpi"] = dots or mpl.rcParams["savefig.dpi"]
            figure = Figure()
            FigureCanvasAgg(figure)
            if not self.draw(figure):
                return {}
            _escape(figure)
            # once; or every format would lay it all out again, and draw it twice
            if layout := figure.get_layout_engine():
                figure.dpi = mpl.rcParams["savefig.dpi"]  # words are wider in fewer dots
                layout.execute(figure)
                mpl.rcParams["figure.constrained_layout.use"] = False
                figure.set_layout_engine(None)
            return {
                each: {"png": _png, "svg": _svg, "pdf": _pdf}[each](figure, self.about) for each in formats
            }


def drawings(comparison: Comparison, names: Sequence[str] = tuple(FIGURES)) -> list[Drawing]:
    """All that may be drawn of a comparison."""
    return [
        Drawing(
            f"{comparison.slug}-{name}",
            partial(draw, comparison=comparison, name=name),
            words(comparison, name),
            comparison.fingerprint,
        )
        for name in names
    ]


def save_figures(
    comparisons: Sequence[Comparison],
    folder: Path,
    names: Sequence[str] = tuple(FIGURES),
    formats: Sequence[str] = USUAL,
    *,
    option: str = "--save",
) -> list[Path]:
    """Every figure of every comparison that has what it shows, as `save`."""
    return save(
        [drawing for comparison in comparisons for drawing in drawings(comparison, names)],
        folder,
        formats,
        option=option,
    )


def save(
    every: Iterable[Drawing], folder: Path, formats: Sequence[str] = USUAL, *, option: str = "--save"
) -> list[Path]:
    """Every figure with its caption beside it as text. The files carry the hash of the results they were
    drawn from. option: by which the user can name another folder.

    Raises StorageError.
    """
    written, names = list[Path](), list[str]()
    with storage_sentence(folder, "cannot draw to", option):
        folder.mkdir(parents=True, exist_ok=True)
        for drawing in every:
            pictures = drawing.pictures(formats)
            texts = (
                {"txt": f"{escape.one_line(drawing.caption)}\n{drawing.about}.\n".encode()}
                if pictures
                else {}
            )
            names.append(unused(drawing.slug, names))
            for suffix, content in {**pictures, **texts}.items():
                written.append(inside(folder, f"{names[-1]}.{suffix}"))
                write_whole(written[-1], content)
    return written


def _escape(figure: Figure) -> None:
    """Make all text of a figure `_drawable`, names of rows on an axis among it. That none is a formula, the
    style says."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(_drawable(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(formatter := axis.get_major_formatter(), FixedFormatter | FuncFormatter):
            axis.set_major_formatter(_Escaped(formatter))


def _drawable(text: str) -> str:
    """Return text with what cannot be seen spelt out, and what is too long for a line cut."""
    lines = escape.visible(text).split("\n")
    if len(lines) > MOST_LINES:
        lines = [" ".join(lines)]
    return "\n".join(line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..." for line in lines)


class _Escaped(Formatter):
    """Words that an axis was given, made `_drawable`."""

    def __init__(self, given: Formatter) -> None:
        self.given = given

    def __call__(self, x: float, pos: int | None = None) -> str:
        return _drawable(self.given(x, pos))


@contextmanager
def style() -> Iterator[None]:
    """The one that all figures have."""
    with as_file(files("linbench.report.style") / "linbench.mplstyle") as path, mpl.rc_context(fname=path):
        yield


def _png(figure: Figure, about: str) -> bytes:
    whole, small, told = io.BytesIO(), io.BytesIO(), PngInfo()
    figure.savefig(whole, format="png")
    told.add_text("Description", about)
    picture = (
        Image.open(whole)
        .convert("RGB")
        .quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    )
    picture.save(small, format="png", optimize=True, pnginfo=told, dpi=(mpl.rcParams["savefig.dpi"],) * 2)
    return small.getvalue()


def _svg(figure: Figure, about: str) -> bytes:
    whole = io.StringIO()
    figure.savefig(whole, format="svg", metadata={"Description": about, "Date": None, "Creator": None})
    return plain(whole.getvalue()).encode()


def _pdf(figure: Figure, about: str) -> bytes:
    whole = io.BytesIO()
    figure.savefig(
        whole,
        format="pdf",
        metadata={"Subject": about, "CreationDate": None, "Creator": None, "Producer": None},
    )
    return whole.getvalue()

"""Figures of stored results, and their files: PNG, SVG and PDF, each with its caption beside it.

A figure is the same bytes whenever it is drawn from the same results.
"""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, Formatter, FuncFormatter
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from linbench.common import escape
from linbench.common.files import inside, storage_sentence, unused, write_whole
from linbench.common.text import pluralize
from linbench.report.data import ReportData
from linbench.report.style.labels import LONGEST, add_title, footnote
from linbench.report.style.svg import shorten_svg, strip_svg
from linbench.report.style.wording import averaged_answers, diverged_runs, setting
from linbench.results.comparison import Comparison, broken_laws, law_warning
from linbench.results.record import seed_of

FORMATS = ("png", "svg", "pdf")

USUAL = ("png", "svg")
"""The formats that are written unless others are asked for."""

MOST_LINES = 40
"""The most lines of a text in a figure; the lines of a longer text are joined, and then cut."""

QUIET = ("Glyph .* missing from", "constrained_layout not applied")
"""Warnings about letters that the font lacks: a PNG has boxes for them, an SVG has the letters, and they may
be wider than their room."""

COLOURS = 256
"""The colours of a PNG: a palette takes a third of the space, and no colour is seen to differ."""


class Drawing(NamedTuple):
    """A figure that is ready to be drawn.

    Attributes:
        slug: its name for files.
        draw: draws it on an empty sheet, and returns False if there is nothing to draw.
        caption: the text that stands below it.
        fingerprint: a hash of the results that it is drawn from.
        title: stands over it in the report, where it is not below the title of a table; names it there among
            the figures of a table with another slug.
        table: the slug of the table that it stands below in the report; default: its own.
        note: stands below it there instead of the caption, as the table's caption says the rest.
    """

    slug: str
    draw: Callable[[Sheet], bool]
    caption: str
    fingerprint: str
    title: str = ""
    table: str = ""
    note: str = ""

    @property
    def about(self) -> str:
        """The sentence in each of its files that says where it comes from."""
        return f"Drawn from results {self.fingerprint}"

    def pictures(self, formats: Sequence[str], *, dots: int | None = None) -> dict[str, bytes]:
        """Return the picture in each of these formats; nothing if there is nothing to draw.

        Args:
            formats: some of `FORMATS`.
            dots: of a PNG per inch; default: as the style has it.
        """
        with style(), warnings.catch_warnings():
            for message in QUIET:
                warnings.filterwarnings("ignore", message)
            mpl.rcParams["savefig.dpi"] = dots or mpl.rcParams["savefig.dpi"]
            sheet = Sheet()
            FigureCanvasAgg(sheet)
            if not self.draw(sheet):
                return {}
            _escape(sheet)
            _lay_out(sheet)
            writers = {"png": _png, "svg": _svg, "pdf": _pdf}
            return {name: writers[name](sheet, self.about) for name in formats}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A kind of figure, as `linbench figures` names it.

    Each module of `linbench.report.figures` has one as `FIGURE`.

    Args:
        name: the name of the module, with hyphens.
        order: its place among all figures, the lowest first.
    """

    name: str
    order: int = 100

    def drawings(self, data: ReportData) -> list[Drawing]:
        """Return all that can be drawn of stored results."""
        raise NotImplementedError


def _any_comparison(comparison: Comparison) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class ComparisonFigure(Figure):
    """A figure of models that may stand side by side, one for each comparison.

    Args:
        draw: draws on an empty sheet; returns False if there is nothing to draw.
        caption: what the figure shows. The setting of the comparison is added.
        applies: a quick look whether a comparison may have what the figure shows.
        uses_tests: whether an accuracy in it is the mean over all answers of a test.
        averages_tests: whether it is the mean over several tests.
        shows_chance: whether runs that diverged are drawn at chance, and the caption has yet to say so.
        marks_doubt: whether hollow marks stand for models that take part in no verdict.
        after_run: whether `linbench run` draws it.
        tuning: whether it shows the runs that chose the learning rate.
    """

    draw: Callable[[Sheet, Comparison], bool]
    caption: str
    applies: Callable[[Comparison], bool] = _any_comparison
    uses_tests: bool = False
    averages_tests: bool = False
    shows_chance: bool = False
    marks_doubt: bool = True
    after_run: bool = False
    tuning: bool = False

    def drawings(self, data: ReportData) -> list[Drawing]:
        """Return a drawing for each comparison that the figure applies to."""
        return [self.drawing(comparison) for comparison in data.comparisons if self.applies(comparison)]

    def drawing(self, comparison: Comparison) -> Drawing:
        """Return the drawing of one comparison."""
        return Drawing(
            f"{comparison.slug}-{self.name}",
            partial(self.draw_on, comparison=comparison),
            self.caption_of(comparison),
            comparison.fingerprint,
        )

    def draw_on(self, sheet: Sheet, comparison: Comparison) -> bool:
        """Draw a comparison with title and footnote; return False if there is nothing to draw."""
        if not self.applies(comparison) or not self.draw(sheet, comparison):
            return False
        title = f"{comparison.title}, {comparison.form} form, {self._seeds(comparison)}"
        add_title(sheet, title, mpl.rcParams["axes.titlesize"])
        if self.marks_doubt:
            footnote(
                sheet,
                tests=len(comparison.tests) if self.averages_tests else 0,
                hollow=not all(row.eligible for row in comparison.rows),
                lawless=bool(broken_laws(comparison.results)),
            )
        return True

    def caption_of(self, comparison: Comparison, *, with_setting: bool = True) -> str:
        """Return the caption for a comparison; without its setting where that stands nearby already."""
        parts = [
            self.caption,
            averaged_answers(comparison) if self.uses_tests else "",
            diverged_runs(comparison) if self.shows_chance else "",
            law_warning(comparison.rows),
            setting(comparison) if with_setting else "",
        ]
        return " ".join(" ".join(parts).split())

    def _seeds(self, comparison: Comparison) -> str:
        """Return the largest number of seeds that any model has."""
        results = [row.tuning if self.tuning else row.results for row in comparison.rows]
        count = max(len({seed_of(result) for result in of_model}) for of_model in results)
        return pluralize(count, "tuning seed" if self.tuning else "seed")


@dataclass(frozen=True, kw_only=True)
class DataFigure(Figure):
    """A figure of results that are not compared as trained models are: of speeds, or of language models.

    Args:
        make: returns all that can be drawn of stored results.
        source: the results that it shows, which decides where in the report it stands.
    """

    make: Callable[[ReportData], list[Drawing]]
    source: Literal["models", "speeds"] = "speeds"

    def drawings(self, data: ReportData) -> list[Drawing]:
        """Return all that can be drawn of stored results."""
        return self.make(data)


def save(
    drawings: Iterable[Drawing],
    folder: Path,
    formats: Sequence[str] = USUAL,
    *,
    captions: bool = True,
    option: str = "--save",
) -> list[Path]:
    """Write figures and return the paths of all files.

    Args:
        drawings: what is drawn.
        folder: made if it is not there.
        formats: some of `FORMATS`.
        captions: whether each has its caption beside it, as text.
        option: with which the user can name another folder.

    Raises:
        StorageError: a file cannot be written.
    """
    written, names = list[Path](), list[str]()
    with storage_sentence(folder, "cannot draw to", option):
        folder.mkdir(parents=True, exist_ok=True)
        for drawing in drawings:
            contents = drawing.pictures(formats)
            if contents and captions:
                text = f"{escape.one_line(drawing.caption)}\n{drawing.about}.\n"
                contents["txt"] = text.encode()
            names.append(unused(drawing.slug, names))
            for suffix, content in contents.items():
                written.append(inside(folder, f"{names[-1]}.{suffix}"))
                write_whole(written[-1], content)
    return written


def _lay_out(sheet: Sheet) -> None:
    """Lay out a figure once; else every format would do so again, and draw it twice."""
    layout = sheet.get_layout_engine()
    if layout:
        sheet.dpi = mpl.rcParams["savefig.dpi"]  # text is wider in fewer dots
        layout.execute(sheet)
        mpl.rcParams["figure.constrained_layout.use"] = False
        sheet.set_layout_engine(None)


def _escape(sheet: Sheet) -> None:
    """Make all text of a figure `_drawable`, including the names of rows on an axis.

    None of it is a formula: the style turns these off.
    """
    for text in sheet.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(_drawable(text.get_text()))
    for axes in sheet.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FixedFormatter | FuncFormatter):
                axis.set_major_formatter(_Escaped(formatter))


def _drawable(text: str) -> str:
    """Return text with what cannot be seen spelt out, and what is too long for a line cut."""
    lines = escape.visible(text).split("\n")
    if len(lines) > MOST_LINES:
        lines = [" ".join(lines)]
    return "\n".join(line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..." for line in lines)


class _Escaped(Formatter):
    """The formatter of an axis whose text is made `_drawable`."""

    def __init__(self, given: Formatter) -> None:
        self.given = given

    def __call__(self, x: float, pos: int | None = None) -> str:
        return _drawable(self.given(x, pos))


@contextmanager
def style() -> Iterator[None]:
    """Set matplotlib to the style of all figures, and back."""
    with as_file(files("linbench.report.style") / "linbench.mplstyle") as path, mpl.rc_context(fname=path):
        yield


def _png(sheet: Sheet, about: str) -> bytes:
    whole, small, told = io.BytesIO(), io.BytesIO(), PngInfo()
    sheet.savefig(whole, format="png")
    told.add_text("Description", about)
    picture = (
        Image.open(whole)
        .convert("RGB")
        .quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    )
    picture.save(small, format="png", optimize=True, pnginfo=told, dpi=(mpl.rcParams["savefig.dpi"],) * 2)
    return small.getvalue()


def _svg(sheet: Sheet, about: str) -> bytes:
    whole = io.StringIO()
    sheet.savefig(whole, format="svg", metadata={"Description": about, "Date": None, "Creator": None})
    return shorten_svg(strip_svg(whole.getvalue())).encode()


def _pdf(sheet: Sheet, about: str) -> bytes:
    whole = io.BytesIO()
    sheet.savefig(
        whole,
        format="pdf",
        metadata={"Subject": about, "CreationDate": None, "Creator": None, "Producer": None},
    )
    return whole.getvalue()

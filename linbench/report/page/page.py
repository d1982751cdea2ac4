"""The report: all stored results of a folder as one HTML page that needs no network."""

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from linbench.common import escape
from linbench.common.files import storage_sentence, try_named, write_named
from linbench.common.text import pluralize
from linbench.experiments.registry import card, controlled, model_settings, registry
from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.figures import comparison_figures, figures
from linbench.report.page import summary
from linbench.report.page.pictures import Picture, embed
from linbench.report.page.tables import environments, failures, for_page, marks, text_table
from linbench.report.style.colors import ink, styles
from linbench.report.table import Table
from linbench.report.tables import table_kinds
from linbench.report.tables.comparison import TABLES as COMPARISONS
from linbench.report.tables.comparison import table
from linbench.results.comparison import Comparison
from linbench.results.record import fingerprint
from linbench.results.schema import Result
from linbench.results.schema.benchmarks import SpeedResult, SweepResult, TimingResult
from linbench.results.schema.cells import CellResult
from linbench.results.schema.pretrained import PretrainedResult


class Claimed(NamedTuple):
    """The verdict that stored results give on a claim.

    Attributes:
        row: its id, the verdict, what it says, and why it is undecided.
        about: further sentences by name, such as its source.
        figures: a heading for each kind of device, with a table of the claim's measures.
        ids: of the results that it rests on.
    """

    row: Sequence[str]
    about: Mapping[str, str]
    figures: Sequence[tuple[str, pd.DataFrame]]
    ids: Collection[str]


def save_page(path: Path, make: Callable[[], str]) -> None:
    """Make a page and write it.

    Args:
        path: of the file; its folder is made if it is not there.
        make: returns the page. It is called once it is known that the file can be written.

    Raises:
        StorageError: the file cannot be written.
    """
    doing, option = "cannot write the report", "--save"
    with storage_sentence(path, doing, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        try_named(path)
    text = make()
    with storage_sentence(path, doing, option):
        write_named(path, text.encode())


def page(
    results: Sequence[CellResult],
    *,
    title: str,
    aside: Sequence[str] = (),
    speeds: Sequence[SpeedResult] = (),
    benched: Sequence[TimingResult] = (),
    sweeps: Sequence[SweepResult] = (),
    pretrained: Sequence[PretrainedResult] = (),
    claims: Sequence[Claimed] = (),
) -> str:
    """Return the report as HTML, the same for the same results.

    Args:
        results: of trained models.
        title: of the page.
        aside: names of files that could not be read.
        speeds: measurements of layers.
        benched: measurements of kernels, training steps and the drawing of examples.
        sweeps: measurements of whole suites.
        pretrained: answers of language models that were trained elsewhere.
        claims: what the results say of claims.
    """
    data = ReportData(results, speeds, benched, sweeps, pretrained)
    tables = {kind: kind.make(data) for kind in table_kinds() if kind.of_comparison is None}
    in_overview = [one for kind, made in tables.items() if kind.source == "models" for one in made]
    of_speeds = [one for kind, made in tables.items() if kind.source == "speeds" for one in made]
    others: dict[str, list[Drawing]] = {"models": [], "speeds": []}
    for figure in figures():
        if isinstance(figure, DataFigure):
            others[figure.source] += figure.drawings(data)
    drawn = [figure.drawing(one) for one in data.comparisons for figure in comparison_figures()]
    pictures = embed([*drawn, *others["models"], *others["speeds"]])
    anchors = {(one.slug, one.title): one.results for one in data.comparisons}
    return _template().render(
        title=title,
        style=_raw("page.css"),
        script=_raw("page.js"),
        facts=summary.facts(data, [claim.row[1] for claim in claims], aside),
        rankings=summary.rankings(data.comparisons),
        overviews=_with_figures(in_overview, others["models"], pictures),
        claims=_claims(claims, {**anchors, ("speed", "Speed"): speeds}),
        comparisons=[_comparison(one, pictures) for one in data.comparisons],
        speeds=_with_figures(of_speeds, others["speeds"], pictures),
        cards=_cards(_mixers(data)),
        environments=for_page(environments(data.results)),
        failures=for_page(failures(results)),
        marks=for_page(marks(data.comparisons)),
        aside=aside,
        drawn_from=fingerprint(data.results),
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("linbench.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["pluralize"] = pluralize
    return environment.get_template("page.html")


def _visible(value: Any) -> Any:
    """Return a value of the page with hidden characters spelt out; what is HTML already stays as it is."""
    return escape.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(name: str) -> Markup:
    """Return a name as HTML that may go on in the next line between two settings."""
    escaped = str(Markup.escape(escape.visible(name)))
    return Markup(escaped.replace(",", ",<wbr>").replace("[", "<wbr>["))


def _raw(name: str) -> Markup:
    """Return a file of this package, which needs no escaping."""
    return Markup((files("linbench.report") / "page" / name).read_text(encoding="utf-8"))


def _captioned(shown: Table) -> dict[str, Any]:
    return {"title": shown.title, "table": for_page(shown), "caption": shown.caption}


def _shown(picture: Picture, name: str, caption: str) -> dict[str, Any]:
    """Return a picture, its name and its caption."""
    return {**picture._asdict(), "name": name, "caption": caption}


def _comparison(comparison: Comparison, pictures: Mapping[str, Picture]) -> dict[str, Any]:
    """Return the section of a comparison: its tables and figures."""
    colours = [ink(style.colour) for style in styles([row.results[0] for row in comparison.rows])]
    own = table(comparison)
    shown = []
    for figure in comparison_figures():
        picture = pictures.get(f"{comparison.slug}-{figure.name}")
        if picture:
            caption = figure.caption_of(comparison, with_setting=False)
            shown.append(_shown(picture, figure.name.replace("-", " "), caption))
    return {
        "slug": comparison.slug,
        "title": f"{comparison.title}, {comparison.form} form",
        "table": for_page(own, colours),
        "caption": own.caption,
        "more": [
            *(
                {"title": heading, "table": for_page(more, colours), "caption": more.caption}
                for heading, more in own.appendix.items()
            ),
            *(
                {"title": heading, "table": for_page(more), "caption": more.caption}
                for heading, more in _other_tables(comparison).items()
            ),
        ],
        "figures": shown,
    }


def _other_tables(comparison: Comparison) -> dict[str, Table]:
    """Return the tables of a comparison beside the one of accuracy, by the names of their kinds."""
    return {
        kind.name.capitalize(): found
        for kind in table_kinds()
        if kind != COMPARISONS
        and kind.of_comparison is not None
        and (found := kind.of_comparison(comparison)) is not None
    }


def _with_figures(
    tables: Sequence[Table], drawings: Sequence[Drawing], pictures: Mapping[str, Picture]
) -> list[dict[str, Any]]:
    """Return the parts of a section: tables, each with the figures below it, then the other figures."""
    below: dict[str, list[Drawing]] = {}
    for drawing in drawings:
        if drawing.slug in pictures:
            below.setdefault(drawing.table or drawing.slug, []).append(drawing)
    parts = []
    for shown in tables:
        part = _captioned(shown)
        part["figures"] = [
            _shown(
                pictures[drawing.slug],
                shown.title if drawing.slug == shown.slug else drawing.title,
                drawing.note,
            )
            for drawing in below.pop(shown.slug, [])
        ]
        parts.append(part)
    for drawing in (drawing for own in below.values() for drawing in own):
        name = drawing.title or drawing.slug.replace("-", " ")
        parts.append({"title": name, "figures": [_shown(pictures[drawing.slug], name, drawing.caption)]})
    return parts


def _claims(
    claims: Sequence[Claimed], sections: Mapping[tuple[str, str], Sequence[Result]]
) -> dict[str, Any]:
    """Return a table of all claims, then each with what it rests on.

    Args:
        claims: what the results say of them.
        sections: the results that sections of the page show, by anchor and title.
    """
    columns = ["claim", "verdict", "says", "why"]
    ids = {section: {result["id"] for result in results} for section, results in sections.items()}
    each = [
        {
            **dict(zip(columns, claim.row, strict=True)),
            "about": claim.about,
            "figures": [
                (
                    heading,
                    for_page(
                        text_table(list(map(str, frame.columns)), frame.astype(str).to_numpy().tolist())
                    ),
                )
                for heading, frame in claim.figures
            ],
            "within": [section for section, own in ids.items() if own & set(claim.ids)],
        }
        for claim in claims
    ]
    return {"table": for_page(text_table(columns, [claim.row for claim in claims])), "each": each}


def _mixers(data: ReportData) -> set[str]:
    trained = {layer["mixer"] for result in data.cells for layer in result["cell"]["model"]["layers"]}
    return trained | {result["bench"]["layer"]["mixer"] for result in data.speeds}


def _cards(mixers: Collection[str]) -> list[dict[str, Any]]:
    """Return the cards of mixers; of those that are not installed here the names alone."""
    entries = registry("model").entries
    absent = {
        "text": "It is not installed where this page was made.",
        "generation": "",
        "settings": [],
        "controlled": [],
    }
    return [
        {"name": name, **(_card(entries[name].cls) if name in entries else absent)} for name in sorted(mixers)
    ]


def _card(cls: Any) -> dict[str, Any]:
    return {
        "text": _unwrapped(card(cls)),
        "generation": getattr(cls, "generation", ""),
        "settings": model_settings(cls),
        "controlled": controlled(cls),
    }


FULL_LINE = 75
"""The columns from which on a line of a docstring was wrapped, and does not end where its author ended it."""


def _unwrapped(text: str) -> str:
    """Return a docstring whose paragraphs are one line each; shorter lines, such as equations, stay apart."""
    joined = list[str]()
    previous = ""
    for line in text.splitlines():
        if len(previous) >= FULL_LINE and line.strip():
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
        previous = line
    return "\n".join(joined)

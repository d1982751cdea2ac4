"""Everything that a folder of results says, as one page of HTML that needs nothing beside it."""

import base64
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from linbench.common import escape
from linbench.common.files import storage_sentence, try_named, write_named
from linbench.experiments.registry import card, controlled, model_settings, registry
from linbench.report.figure import Drawing, drawings
from linbench.report.figures import FIGURES
from linbench.report.figures.benchmarks import bench_drawings
from linbench.report.figures.captions import words
from linbench.report.figures.layer_speeds import speed_drawings
from linbench.report.style.colors import ink, styles
from linbench.report.style.svg import short
from linbench.report.tables.benchmarks import bench_tables
from linbench.report.tables.comparison import LEFT, MORE, caption, more_tables, table
from linbench.report.tables.layer_speeds import tables as speed_tables
from linbench.report.tables.overview import OVERVIEW, overviews
from linbench.results.comparison import Comparison, Row, comparisons
from linbench.results.record import Result, fingerprint, seed_of

PICTURES_BYTES = 3_800_000
"""Of all pictures in the page: where they have more, the largest are drawn coarser."""

COARSE = 110
"""Dots per inch of these."""


class Picture(NamedTuple):
    """The source of an image, and how many inches wide it is meant to be."""

    source: Markup
    inches: float


class Claimed(NamedTuple):
    """What results say of a claim. row: its name, verdict, what it says, why it is undecided; about: more of
    it, by name; figures: every measure, for each kind of device with a heading; ids: of the results that it
    rests on."""

    row: Sequence[str]
    about: Mapping[str, str]
    figures: Sequence[tuple[str, pd.DataFrame]]
    ids: Collection[str]


def save_page(path: Path, make: Callable[[], str]) -> None:
    """Raises StorageError, before it is made: the file cannot be written."""
    doing, option = "cannot write the report", "--save"
    with storage_sentence(path, doing, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        try_named(path)
    text = make()
    with storage_sentence(path, doing, option):
        write_named(path, text.encode())


def page(
    results: Sequence[Result],
    *,
    title: str,
    aside: Sequence[str] = (),
    speeds: Sequence[Result] = (),
    benched: Sequence[Result] = (),
    claims: Sequence[Claimed] = (),
) -> str:
    """HTML; the same for the same results. `aside`: names of files that could not be read; `speeds`: results
    of what benchmarks measured of layers, `benched`: of kernels, steps and drawing."""
    found, every = comparisons(results), [*results, *speeds, *benched]
    timed = {drawing.slug: drawing for drawing in [*speed_drawings(speeds, found), *bench_drawings(benched)]}
    pictures = _pictures(
        [*(drawing for comparison in found for drawing in drawings(comparison)), *timed.values()]
    )
    room = Environment(
        loader=PackageLoader("linbench.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    return room.get_template("page.html").render(
        title=title,
        style=_raw("page.css"),
        script=_raw("page.js"),
        counts={
            "results": len(results),
            "comparisons": len(found),
            "models": len({row.results[0]["label"] for one in found for row in one.rows}),
            "speeds": len(speeds) + len(benched),
        },
        drawn_from=fingerprint(every),
        overviews=[
            {"title": name, "table": _table(one.frame), "about": OVERVIEW}
            for name, one in overviews(found).items()
        ],
        claims=_claims(
            claims, {**{(one.slug, one.title): one.results for one in found}, ("speed", "Speed"): speeds}
        ),
        comparisons=[_section(one, pictures) for one in found],
        speeds=[
            {"title": words.title, "table": _table(words.frame), "caption": words.caption}
            for words in [*speed_tables(speeds), *bench_tables(benched)]
        ],
        speed_figures=[
            _shown(pictures[slug], slug, timed[slug].caption) for slug in timed if slug in pictures
        ],
        cards=_cards(
            {layer["mixer"] for result in results for layer in result["cell"]["model"]["layers"]}
            | {one["bench"]["layer"]["mixer"] for one in speeds}
        ),
        environments=_table(_environments(every)),
        failures=_table(_failures(results)),
        marks=_table(_marks(found)),
        aside=aside,
    )


def _visible(value: Any) -> Any:
    """Return what the page is given with hidden characters spelt out; what is HTML already stays."""
    return escape.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _raw(name: str) -> Markup:
    """One of our own files, not to be escaped."""
    return Markup((files("linbench.report") / "page" / name).read_text(encoding="utf-8"))


def _table(frame: pd.DataFrame, left: Collection[str] = LEFT) -> dict[str, Any]:
    """Its columns, each with whether it holds words, and its rows; without marks or notes where there are
    none."""
    shown = frame.drop(
        columns=[name for name in frame.columns if name in {"marks", "notes"} and not frame[name].any()]
    )
    return {
        "columns": [(str(name), name in left) for name in shown.columns],
        "rows": shown.astype(str).to_numpy().tolist(),
    }


def _shown(picture: Picture, name: str, words: str) -> dict[str, Any]:
    """A figure, its name in words, and what stands below it."""
    return {**picture._asdict(), "name": name.replace("-", " "), "words": words}


def _claims(
    claims: Sequence[Claimed], sections: Mapping[tuple[str, str], Sequence[Result]]
) -> dict[str, Any]:
    """A table of all, then each with what it rests on. sections: of the page, by anchor and title, with what
    is shown there."""
    columns = ["claim", "verdict", "says", "why"]
    ids = {section: {result["id"] for result in results} for section, results in sections.items()}
    each = [
        {
            **dict(zip(columns, claim.row, strict=True)),
            "about": claim.about,
            "figures": [(words, _table(frame, frame.columns)) for words, frame in claim.figures],
            "within": [section for section, own in ids.items() if own & set(claim.ids)],
        }
        for claim in claims
    ]
    return {
        "table": _table(pd.DataFrame([claim.row for claim in claims], columns=columns), columns),
        "each": each,
    }


def _section(comparison: Comparison, pictures: dict[str, Picture]) -> dict[str, Any]:
    colours = [ink(style.colour) for style in styles([row.results[0] for row in comparison.rows])]
    return {
        "slug": comparison.slug,
        "title": f"{comparison.title}, {comparison.form} form",
        "table": {**_table(table(comparison)), "colours": colours},
        "caption": caption(comparison),
        "more": [
            (MORE[name], {**_table(frame), "colours": colours})
            for name, frame in more_tables(comparison).items()
        ],
        "figures": [
            _shown(pictures[f"{comparison.slug}-{name}"], name, words(comparison, name, settings=False))
            for name in FIGURES
            if f"{comparison.slug}-{name}" in pictures
        ],
    }


def _pictures(drawn: Iterable[Drawing]) -> dict[str, Picture]:
    """By the names of their files: lines where there is room for them, else dots."""
    every = {drawing.slug: drawing for drawing in drawn}
    pictures = {
        slug: _as_lines(svg["svg"].decode())
        for slug, drawing in every.items()
        if (svg := drawing.pictures(["svg"]))
    }
    for slug, lines in sorted(pictures.items(), key=lambda item: len(item[1].source), reverse=True):
        if sum(len(one.source) for one in pictures.values()) > PICTURES_BYTES:
            png = base64.b64encode(every[slug].pictures(["png"], dots=COARSE)["png"]).decode()
            pictures[slug] = min(
                lines,
                lines._replace(source=Markup(f"data:image/png;base64,{png}")),
                key=lambda one: len(one.source),
            )
    return pictures


def _as_lines(svg: str) -> Picture:
    """As a data URI, to stand between single quotes."""
    told = short(svg)
    size = re.search(r'viewBox="0 0 ([\d.]+) ', told)
    assert size, "matplotlib says how large its pictures are"
    for sign, code in (("%", "%25"), ("#", "%23"), ("'", "%27"), ("&", "&amp;")):
        told = told.replace(sign, code)
    return Picture(Markup(f"data:image/svg+xml;charset=utf-8,{told}"), round(float(size[1]) / 72, 2))


def _cards(mixers: Collection[str]) -> list[dict[str, Any]]:
    """Of every mixer that occurs and is found here; of others their names alone."""
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
        "text": card(cls),
        "generation": getattr(cls, "generation", ""),
        "settings": model_settings(cls),
        "controlled": controlled(cls),
    }


def _environments(results: Sequence[Result]) -> pd.DataFrame:
    """What was measured with what, and how many results of each."""
    found = Counter(tuple(_environment(result).items()) for result in results)
    return pd.DataFrame([{"results": count, **dict(one)} for one, count in sorted(found.items(), key=str)])


def _environment(result: Result) -> dict[str, str]:
    told = result["environment"]
    commit = f"{(told['commit'] or 'none known')[:10]}{', with changes' if told.get('dirty') else ''}"
    device = told.get("device", {})
    where = {
        "device": device.get("name") or (result["bench"] if "bench" in result else result["cell"])["device"],
        "cuda": device.get("cuda"),
        "threads": told.get("threads"),
    }
    more = {"python": told.get("python"), "platform": told.get("platform"), **told["packages"]}
    return {
        "commit": commit,
        **{name: "–" if value is None else str(value) for name, value in {**where, **more}.items()},
    }


def _failures(results: Sequence[Result]) -> pd.DataFrame:
    """Cells that did not end well."""
    return pd.DataFrame(
        [
            {
                "task": " ".join(part for part in (result["cell"]["task"]["name"], result["preset"]) if part),
                "model": result["label"],
                "form": result["cell"]["model"]["form"],
                "seed": seed_of(result),
                "purpose": result["purpose"],
                "status": result["status"],
                "reason": result["reason"] or "",
            }
            for result in results
            if result["status"] != "ok"
        ]
    )


def _marks(found: Sequence[Comparison]) -> pd.DataFrame:
    """Models that take part in no verdict, or of which runs did not end well."""
    marked: list[tuple[Comparison, Row]] = [
        (comparison, row) for comparison in found for row in comparison.rows if row.marks
    ]
    return pd.DataFrame(
        [
            {"comparison": f"{one.title}, {one.form}", "model": row.label, "marks": ", ".join(row.marks)}
            for one, row in marked
        ]
    )

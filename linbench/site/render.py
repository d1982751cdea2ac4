"""Pages of the site, and the templates that they are made with."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from textwrap import dedent
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from linbench.common import escape
from linbench.report.figure import Drawing
from linbench.report.table import Table


class Page(NamedTuple):
    """A page of the site in Markdown, with its path among the sources of the site."""

    path: str
    text: str


class Made(NamedTuple):
    """A page, and the figures that it shows."""

    page: Page
    drawings: Sequence[Drawing] = ()


class Site(NamedTuple):
    """All that MkDocs makes a site of: pages, and other files by their paths."""

    pages: Sequence[Page]
    files: Mapping[str, bytes]


def page(path: str, template: str, **values: Any) -> Page:
    """Return a page made of a template of this package, in which all text is escaped but for `Markup`."""
    return Page(path, _environment().get_template(f"{template}.md.jinja").render(**values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("linbench.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=text,
    )
    environment.filters["prose"] = _prose
    environment.filters["lines"] = lambda words: Markup(escape.mkdocs_lines(words))
    environment.filters["capital"] = lambda words: f"{words[:1].upper()}{words[1:]}"
    return environment


def _prose(block: str) -> Markup:
    """Return a paragraph of a card, in which what stands between backticks is code."""
    return Markup(re.sub("&#96;(.+?)&#96;", r"<code>\1</code>", escape.mkdocs(block)))


def text(value: Any) -> Any:
    """Return text as Markdown and HTML show it; what is `Markup` stays as it is."""
    return Markup(escape.mkdocs(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


def link(words: str, target: str) -> Markup:
    """Return a link of Markdown to a page of the site, or the words alone if there is no target."""
    return Markup(f"[{escape.mkdocs(words)}]({target})") if target else Markup(escape.mkdocs(words))


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> Markup:
    """Return a table of Markdown.

    Args:
        columns: the headings.
        rows: cells, escaped but for `Markup`.
        numbers: the columns that are aligned to the right.
    """
    lines = [
        map(text, columns),
        ("--:" if name in numbers else ":--" for name in columns),
        *(map(text, row) for row in rows),
    ]
    return Markup("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")


def grid_of(table: Table, links: Mapping[str, str] | None = None) -> Markup:
    """Return the rows of a table as Markdown.

    Args:
        table: without its empty columns, where these may be hidden.
        links: the pages that cells of the first column lead to, by their texts.
    """
    shown, known = table.without_empty(), links or {}
    rows = [[link(first, known.get(first, "")), *others] for first, *others in shown.texts]
    return grid(shown.names, rows, numbers=[column.name for column in shown.columns if not column.left])


def paragraphs(card: str) -> list[tuple[bool, str]]:
    """Return the blocks of a card in their order, each with whether its lines stay apart, as equations do."""
    blocks = [block for block in card.split("\n\n") if block.strip()]
    return [(block.startswith((" ", "- ")), dedent(block)) for block in blocks]

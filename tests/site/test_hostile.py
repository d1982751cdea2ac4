"""Text of results stays text on the pages of the site."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import markdown
import pytest
import yaml

from linbench.common import escape
from linbench.results.record import is_cell
from linbench.results.schema import Result
from linbench.results.submission import Statement, write_submission
from linbench.site.build import CONFIG
from linbench.site.pages import site_from
from tests.helpers.hostile import FIELDS, TEXTS, results
from tests.helpers.records import a_record
from tests.helpers.site import findings_of, trained

every_text = pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))

EXTENSIONS = ["tables", "md_in_html", "toc"]

READER = markdown.Markdown(extensions=EXTENSIONS)

OURS = {
    "a", "br", "code", "details", "div", "em", "figcaption", "figure", "h1", "h2", "h3", "hr", "img", "li",
    "p", "pre", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
"""Elements that our pages are made of."""


class Seen(HTMLParser):
    """The elements, the attributes and the words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attributes]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(text: str) -> Seen:
    READER.reset()
    return Seen(READER.convert(re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)))


def assert_ours(seen: Seen) -> None:
    assert seen.tags <= OURS, seen.tags - OURS
    assert {name for name, _ in seen.attributes} <= {
        "alt",
        "class",
        "data-choose",
        "href",
        "id",
        "src",
        "style",
    }
    for name, value in seen.attributes:
        if name in {"href", "src"}:
            assert re.fullmatch(r"(\.\./)?[a-z]*/?[A-Za-z0-9_.-]+\.(md|svg)", value), value


def said(seen: Seen) -> str:
    return " ".join(" ".join(seen.words).split())


@every_text
def test_escaped_text_is_read_as_it_was(text: str) -> None:
    shown = " ".join(escape.one_line(text).split())
    for around in ("{}", "# {}", "- {}", "before {} after", "| a |\n|---|\n| {} |", "<p>{}</p>"):
        seen = read(around.format(escape.mkdocs(text)))
        assert seen.tags <= {"p", "h1", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
        assert shown in said(seen)


@every_text
def test_lines_stay_apart_and_are_text(text: str) -> None:
    (block,) = read(f"<pre>{escape.mkdocs_lines(text)}</pre>").tags
    assert block == "pre"


@pytest.mark.parametrize(
    "text", ["1. one", "2) two", "- three", "+ four", "--- five", "a_b", "_c_", "0.95 ± 0.01"]
)
def test_what_begins_a_list_is_text(text: str) -> None:
    seen = read(escape.mkdocs(text))
    assert (seen.tags, said(seen)) == ({"p"}, text)


@every_text
def test_on_every_page(a_result: Callable[..., Result], text: str) -> None:
    """A label, a device, marks and reasons of a model that was trained, and that failed."""
    hostile = results(a_result, text, *(field for field in FIELDS if field != "task"))
    labelled = [trained(a_result, text, seed, 0.5, "counter") for seed in range(2)]
    site = site_from(findings_of([*hostile, *labelled]))
    words = ""
    for page in site.pages:
        if page.path in {
            "index.md",
            "variants/deltanet.md",
            "tasks/mqar.md",
            "tasks/counter.md",
            "claims/index.md",
        }:
            seen = read(page.text)
            assert_ours(seen)
            words += said(seen)
    assert " ".join(escape.one_line(text).split()) in words
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._/-]*", path) for path in site.files)


@every_text
def test_what_a_submission_says_is_text(text: str, tmp_path: Path) -> None:
    """Its layer, suite, command and source; sources have several lines."""
    said_by_author: Statement = {
        "layer": "deltanet",
        "suite": text,
        "command": text,
        "linbench": text,
        "sources": {"mine": {text: f"first\n\n{text}\n\n</pre>last"}},
    }
    record = a_record("0" * 64)
    assert is_cell(record)
    findings = findings_of([])
    findings.stored.submissions = [write_submission(tmp_path, said_by_author, [record])]
    (page,) = (page for page in site_from(findings).pages if page.path == "submissions.md")
    seen = read(page.text)
    assert_ours(seen)
    words = said(seen)
    assert words.count(" ".join(escape.one_line(text).split())) >= 4
    assert "</pre>last" in words


def test_the_reader_is_that_of_the_site() -> None:
    config = yaml.safe_load((files("linbench.site") / CONFIG).read_text(encoding="utf-8"))
    named = [next(iter(one)) if isinstance(one, dict) else one for one in config["markdown_extensions"]]
    assert named == EXTENSIONS

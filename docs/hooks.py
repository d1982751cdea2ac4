"""Hooks of MkDocs (`make docs`): pages that are made rather than written, and files that lie outside `docs`.

The start page is README.md; CHANGELOG.md is a page, too. `models.md` and `task-cards.md` are made of the
docstrings of what linbench ships. A picture or source file outside `docs` that a page names is put into the
site under its path in the repository.
"""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from linbench.common.escape import mkdocs
from linbench.experiments.registry import Kind, card, shipped

ROOT = Path(__file__).resolve().parent.parent

_LINK = re.compile(r"(?<=\]\()[^)\s#]+|(?<=src=\")[^\"#]+")
_OUTSIDE = ("results/", "examples/")
_FOLDERS = {"decisions": "decisions/index.md"}
"""Folders that pages name, with the page of each."""


_AT_ROOT = ("index.md", "CHANGELOG.md")
"""Pages that lie beside `docs`, whose links are as seen from there."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the start page, the catalogues, and the files outside `docs` that pages name."""
    made = {
        "index.md": _from_root("README.md"),
        "CHANGELOG.md": _from_root("CHANGELOG.md"),
        "models.md": _catalogue(
            "model",
            "Models",
            "Every variant that linbench ships: its equation and its source."
            " [Which optimiser is your layer?](which-optimiser.md) tells them apart by what they fit.",
        ),
        "task-cards.md": _catalogue(
            "task", "Tasks", "Every task that linbench ships: its examples and its chance level."
        ),
        "decisions/index.md": _decisions(files),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for target in sorted({one for page in files.documentation_pages() for one in _outside(page)}):
        files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links of a page to where the files outside `docs`, and pages of folders, lie in the site."""
    depth = page.file.src_uri.count("/")
    return _LINK.sub(lambda link: _inside(_FOLDERS.get(link[0], link[0]), page.file.src_uri, depth), markdown)


def _outside(page: File) -> Iterable[str]:
    for link in _LINK.findall(page.content_string):
        target = _resolved(link, page.src_uri)
        if target.startswith(_OUTSIDE) and (ROOT / target).is_file():
            yield target


def _inside(link: str, page: str, depth: int) -> str:
    target = _resolved(link, page)
    return "../" * depth + target if target.startswith(_OUTSIDE) else link


def _resolved(link: str, page: str) -> str:
    """Return the path in the repository that a link of a page in `docs` names, or the link itself."""
    if "://" in link or page in _AT_ROOT:
        return link
    parts: list[str] = []
    for part in (PurePosixPath("docs", page).parent / link).parts:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)


def _from_root(name: str) -> str:
    """Return a page that lies beside `docs` with its links as seen from there."""
    return (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace('"docs/', '"')


def _decisions(files: Files) -> str:
    """Return a list of the decision records by their titles."""
    pages = files.documentation_pages()
    records = sorted((one.name, one.content_string) for one in pages if one.src_uri.startswith("decisions/"))
    lines = [f"- [{_title(text)}]({name}.md)" for name, text in records]
    return "\n".join(["# Decisions", "", "Why some things are as they are.", "", *lines])


def _catalogue(kind: Kind, title: str, lead: str) -> str:
    cards = {entry.name: card(entry.cls) for entry in shipped(kind).entries.values()}
    heads = [f"| [`{name}`](#{name}) | {_equation(text)} |" for name, text in cards.items()]
    texts = [f"## {name}\n\n```text\n{text}\n```" for name, text in cards.items()]
    return "\n".join([f"# {title}", "", lead, "", "| name | in one line |", "|---|---|", *heads, "", *texts])


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def _equation(card: str) -> str:
    """Return the first paragraph of a card as a table's cell in which Markdown finds nothing to format."""
    return mkdocs(card.partition("\n\n")[0])

"""Escaping of text from elsewhere (a result, a plugin, a suite), so that it stays text in every output.

Every function returns ordinary text unchanged. JSON needs `in_json` only if characters beyond ASCII are
written as they are.
"""

import json
import re
from pathlib import Path
from urllib.parse import quote

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that are removed.

They are control characters except tab and newline, characters that change the direction of text or have no
width, and lone surrogates.
"""


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


_WORKFLOW = re.compile(r"^(\s*):(?=:)|(#)#(?=\[)", re.MULTILINE)
"""The beginning of a line that a workflow runner would read as a command."""


def visible(text: str) -> str:
    """Return text with hidden characters spelt out in hexadecimal; tabs and newlines stay.

    No line of it is a command to a workflow runner.
    """
    text = _WORKFLOW.sub(lambda match: f"{match[1]}\\x3a" if match[1] is not None else "#\\x23", text)
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Return `visible` text on one line, for a terminal, a caption or a log."""
    return visible(" ".join(text.split()))


_ACTIVE = re.compile(
    r"""
    (?P<sign>
        [\\`*~|$]
      | <(?=[A-Za-z/!?])                           # a tag, a comment, a link
      | &(?=[#A-Za-z])                             # an entity
      | \](?=[(\[:])                               # a link, an image, where a link leads
      | (?<![A-Za-z0-9])_ | _(?![A-Za-z0-9])       # emphasis; inside a word it is none
    )
    | (?P<joined>
        @(?=[\w-])                                 # a mention, an address
      | \#(?=\d) | (?i:\bgh-)(?=\d)                # an issue
      | (?i:\b(?:[a-z][a-z0-9+.-]*)):(?=//)        # an address that is linked as it stands
      | (?i:\b(?:mailto|xmpp|tel|data|javascript):)(?=\S)
      | (?i:\bwww\.)(?=\S)
    )
    """,
    re.VERBOSE,
)
_BLOCK = re.compile(r"^(?:(?P<number>\d{1,9})(?=[.)](?:\s|$))|(?=[#>=:\[]|[+-](?:[\s-]|$)))")
_NOTHING = "&#8203;"
"""A zero-width space. It breaks up mentions and links, which sites recognise even behind a backslash."""


def markdown(text: str) -> str:
    """Escape text for Markdown, on one line: a heading, a table's cell or the middle of a paragraph.

    Nothing in it becomes HTML, a link, an image, a mention, code, emphasis or the end of a cell. `Markdown`
    is returned unchanged.
    """
    if isinstance(text, Markdown):
        return text
    return Markdown(
        _ACTIVE.sub(lambda match: f"\\{match[0]}" if match["sign"] else match[0] + _NOTHING, one_line(text))
    )


def paragraph(text: str) -> str:
    """Escape text as `markdown` does, for the beginning of a paragraph or list item.

    It becomes no heading, list, quote or rule.
    """
    return Markdown(_BLOCK.sub(lambda match: f"{match['number'] or ''}\\", markdown(text)))


_MKDOCS = re.compile(
    r"""
    [\\`*{}\[\]<>&#|~!$^:@"'=]
    | (?<![A-Za-z0-9])_ | _(?![A-Za-z0-9])         # emphasis; inside a word it is none
    | ^[-+](?=[\s+-]|$) | ^\d+[.)](?=\s|$)         # a list, a rule
    """,
    re.VERBOSE,
)
"""Signs that Python-Markdown, its extensions or HTML may read as more than text."""


def mkdocs(text: str) -> str:
    """Escape text for a page of MkDocs, on one line, wherever in Markdown or HTML it stands.

    Python-Markdown knows fewer signs behind a backslash than others do, and lets HTML through. So what may be
    more than text is written as a character reference.
    """
    return mkdocs_lines(one_line(text))


def mkdocs_lines(text: str) -> str:
    """Escape text as `mkdocs` does, for a block of HTML whose lines stay apart, such as `<pre>`."""
    return _MKDOCS.sub(lambda found: "".join(f"&#{ord(sign)};" for sign in found[0]), visible(text))


_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": "\\textbackslash{}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        "<": "\\textless{}",
        ">": "\\textgreater{}",
        "|": "\\textbar{}",
        '"': "\\textquotedbl{}",
        "±": "$\\pm$",
        "–": "--",
        "→": "$\\to$",
    }
)
"""Characters that mean something to LaTeX, or that it has no letter for."""


def latex(text: str) -> str:
    """Escape text for LaTeX, on one line.

    A bracket or star at its beginning is put in braces, since a line end before would read it as an argument.
    """
    escaped = one_line(text).translate(_LATEX)
    return f"{{{escaped[0]}}}{escaped[1:]}" if escaped[:1] in {"[", "*"} else escaped


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?")
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv(text: str) -> str:
    """Escape text for a spreadsheet's cell, on one line: an apostrophe keeps it from being a formula."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) and not _NUMBER.fullmatch(line) else line


def in_json(text: str) -> str:
    """Escape the hidden characters in JSON text; its values stay the same."""
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f", text)


def url(path: Path) -> str:
    """Return a relative path as a link needs it, also one whose bytes are not UTF-8."""
    return quote(path.as_posix(), errors="surrogateescape")

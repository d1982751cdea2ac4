"""How text from elsewhere (a result, a plugin, a suite) is written into each kind of output, so that it stays
text there.

Every function returns ordinary text as it is. JSON needs `in_json` only where characters beyond ASCII stand
as they are.
"""

import json
import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Control characters but tab and newline, what changes the direction of text or has no width, and halves of
characters."""


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


_WORKFLOW = re.compile(r"^(\s*):(?=:)|(#)#(?=\[)", re.MULTILINE)
"""Where a line of a log would be a command to the runner of a workflow."""


def visible(text: str) -> str:
    """Return text whose hidden characters are spelt out in hexadecimal; tabs and newlines stay. No line of it
    is a command of a workflow."""
    text = _WORKFLOW.sub(lambda found: f"{found[1]}\\x3a" if found[1] is not None else "#\\x23", text)
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Return text for a terminal, a caption or a line of a log: `visible`, with single spaces for all white
    space."""
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
"""A space of no width: it takes apart what sites join to a mention or a link even behind a backslash."""


def markdown(text: str) -> str:
    """Return text as Markdown shows it, on one line: in a heading, a table's cell or within a paragraph.
    `Markdown` stays as it is.

    Nothing in it is HTML, a link, an image, a mention, code, emphasis or the end of a cell.
    """
    if isinstance(text, Markdown):
        return text
    return Markdown(
        _ACTIVE.sub(lambda found: f"\\{found[0]}" if found["sign"] else found[0] + _NOTHING, one_line(text))
    )


def paragraph(text: str) -> str:
    """Return text as `markdown` does, for where a paragraph or an item of a list begins: it is no heading,
    list, quote or rule."""
    return Markdown(_BLOCK.sub(lambda found: f"{found['number'] or ''}\\", markdown(text)))


_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}",
        "|": "\\textbar{}", '"': "\\textquotedbl{}", "±": "$\\pm$", "–": "--", "→": "$\\to$",
    }
)  # fmt: skip
"""What LaTeX would take for a command, or has no letter for."""


def latex(text: str) -> str:
    """Return text as LaTeX sets it, on one line; at its beginning no bracket or star that a line end before
    would take for its own."""
    told = one_line(text).translate(_LATEX)
    return f"{{{told[0]}}}{told[1:]}" if told[:1] in {"[", "*"} else told


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?")
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv(text: str) -> str:
    """Return text as a cell of a spreadsheet, on one line: behind an apostrophe where it would be a formula.
    A number stays one."""
    told = one_line(text)
    return f"'{told}" if told.startswith(_FORMULA) and not _NUMBER.fullmatch(told) else told


def in_json(written: str) -> str:
    """Return JSON of the same values in which no hidden character stands as it is."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", written)

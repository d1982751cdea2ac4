"""Shorter SVG: removal of what pictures of matplotlib can do without."""

import re

COMMENT, TAG = re.compile(r"\s*<!-- .*? -->", re.DOTALL), re.compile(r"<[^>]*>")
INDENT, IN_PATH = re.compile(r">\s*\n\s*<"), re.compile(r" *\n\s*(?=[A-Za-z\"])")
FINER = re.compile(r"(?<=\d\.\d\d)\d+(?=[ \"\n,)])")
PATH, FINER_IN_PATH = re.compile(r' d="[^"]*"'), re.compile(r"(?<=\d\.\d)\d+(?=[ \"\n,)])")
ZEROS = re.compile(r"(?<=\d)(?:\.0+|(\.\d*?)0+)(?=[ \"\n,)])")
STYLE, NAMED_GROUP = re.compile(r' style="([^"]*)"'), re.compile(r'<g id="[^"]*"')
LINES = re.compile(r"[ML][^A-Za-z\"]*(?:L[^A-Za-z\"]*)+")


def strip_svg(svg: str) -> str:
    """Return an SVG without comments and indents, its numbers cut to hundredths of a point.

    Numbers of paths, which are most of it, are cut to tenths. Text between tags keeps all its digits.
    """

    def cut(tag: str) -> str:
        return PATH.sub(lambda path: FINER_IN_PATH.sub("", path[0]), FINER.sub("", IN_PATH.sub(" ", tag)))

    return TAG.sub(lambda tag: cut(tag[0]), INDENT.sub(">\n<", COMMENT.sub("", svg)))


ID = re.compile(r'(?<= id=")[pm][0-9a-f]{10}(?=")|(?<=#)[pm][0-9a-f]{10}(?=[")])')
"""The name of a clip or a mark, where it is given and where it is used."""

UNTURNED = re.compile(r' transform="rotate\(-?0 [^"]*\)"')
"""A turn by no degrees, which matplotlib writes for all level text."""


MARKS = re.compile(r'<g( clip-path="[^"]*")?>(<use [^>]* class="(\w+)"/>(?:<use [^>]* class="\3"/>)*)</g>')
"""A group of the marks of one line, which have one style."""

SEE_THROUGH = re.compile(r"(?<!-)opacity")
"""A property that marks do not inherit from their group one by one."""


def shorten_svg(svg: str) -> str:
    """Return the same picture in about two thirds of the space.

    Styles that recur are named once, and those of the marks of a line for all of them. Names of clips and
    marks are as short as can be, points of a line follow each other without a letter each, and groups without
    attributes and turns by nothing are removed.
    """
    classes: dict[str, str] = {}
    ids: dict[str, str] = {}
    groups: list[bool] = []  # of those that are open, whether they are kept

    def shortened(found: re.Match[str]) -> str:
        tag = STYLE.sub(
            lambda style: f' class="{classes.setdefault(style[1], f"c{len(classes):x}")}"',
            UNTURNED.sub("", NAMED_GROUP.sub("<g", found[0])),
        )
        tag = ID.sub(lambda name: ids.setdefault(name[0], f"{name[0][0]}{len(ids):x}"), tag)
        if tag.startswith("<g") and not tag.endswith("/>"):
            groups.append(tag != "<g>")
            return tag if groups[-1] else ""
        if tag == "</g>":
            return tag if groups.pop() else ""
        return LINES.sub(
            lambda lines: lines[0][0] + lines[0][1:].replace("L", ""),
            ZEROS.sub(lambda zeros: zeros[1] or "", tag),
        )

    told = TAG.sub(shortened, svg[svg.index("<svg") :])
    named = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    joined = " ".join(told.replace("</style>", f"{named}</style>", 1).split()).replace("> <", "><")
    unshared = {name for style, name in classes.items() if SEE_THROUGH.search(style)}

    def style_of_all(marks: re.Match[str]) -> str:
        clip, uses, name = marks.groups(default="")
        if name in unshared:
            return marks[0]
        own = f' class="{name}"'
        return f"<g{clip}{own}>{uses.replace(own, '')}</g>"

    return MARKS.sub(style_of_all, joined).replace("<use xlink:href=", "<use href=")

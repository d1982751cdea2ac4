"""A short SVG is the same picture."""

import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from linbench.report.style.svg import shorten_svg, strip_svg

WORDS = "0.1000 of 100.00, L 5 and M 7 <a & b>"


@pytest.fixture(scope="module")
def svg() -> str:
    """Lines of one style and of several, a curve, marks, a band, words with digits and brackets."""
    figure, written = Figure(), io.StringIO()
    left, right = figure.subplots(1, 2)
    for i in range(3):
        left.plot([0, 1, 2.123456, 3], [i, 0.1 * i, 1 / 3, 10.0], color="C0", marker="o")
    right.fill_between([0, 1, 2], [0, 1, 0], [2, 3, 1], alpha=0.3, hatch="//")
    right.scatter([0.5, 1.0], [1.0, 2.0], marker="v")
    right.set_title(WORDS)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "linbench"}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return strip_svg(written.getvalue())


NAME = re.compile(r"(?<=#)[pm][0-9a-f]+(?=\)|$)|^[pm][0-9a-f]+$")
"""The name of a clip or a mark in an attribute."""


def drawn(svg: str) -> Iterator[tuple[str, dict[str, object], str]]:
    """All elements but groups that say nothing, with their own styles, or those of their groups, written out
    and their paths as commands with numbers."""
    root = ElementTree.fromstring(svg)
    rules = "".join(style.text or "" for style in root.iter("{http://www.w3.org/2000/svg}style"))
    styles = dict(re.findall(r"\.(c[0-9a-f]+)\{([^}]*)\}", rules))
    names: dict[str, int] = {}
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        shared = group.attrib.pop("class", None)
        for element in group if shared else ():
            element.set("class", str(shared))
    for element in root.iter():
        tag = element.tag.rpartition("}")[2]
        attributes: dict[str, object] = {key.rpartition("}")[2]: value for key, value in element.items()}
        if tag == "style" or (tag == "g" and not set(attributes) - {"id"}):
            continue
        if tag == "g":
            attributes.pop("id", None)
        if isinstance(name := attributes.pop("class", None), str):
            attributes["style"] = styles[name]
        if str(attributes.get("transform")).startswith("rotate(-0 "):
            del attributes["transform"]
        for key, value in attributes.items():
            if isinstance(value, str):
                attributes[key] = (
                    list(commands(value))
                    if key == "d"
                    else NAME.sub(
                        lambda name: str(names.setdefault(name[0], len(names))),
                        re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):g}", value),
                    )
                )
        yield tag, attributes, (element.text or "").strip()


def commands(path: str) -> Iterator[tuple[str | float, ...]]:
    """One for each point: lines that follow M or L without a letter have theirs."""
    for letter, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        values = [float(number) for number in numbers.split()]
        if letter not in "ML":
            yield letter, *values
        else:
            for i in range(0, len(values), 2):
                yield "L" if i else letter, *values[i : i + 2]


def test_it_draws_the_same_in_less_space(svg: str) -> None:
    shorter = shorten_svg(svg)
    assert list(drawn(shorter)) == list(drawn(svg))
    assert len(shorter) < 0.72 * len(svg)


def test_marks_of_a_line_share_a_style_unless_it_is_seen_through(svg: str) -> None:
    own, shared = r"<use [^>]*class=", r'<g [^>]*class="c[0-9a-f]+"><use '
    shorter = shorten_svg(svg)
    assert len(re.findall(shared, shorter)) > 3
    veiled = shorten_svg(re.sub(r'(<use [^>]*style=")', r"\1opacity: 0.5; ", svg))
    assert len(re.findall(own, veiled)) > len(re.findall(own, shorter))
    assert not re.search(shared, veiled)


def test_names_are_short_and_each_is_given_once(svg: str) -> None:
    shorter = shorten_svg(svg)
    used = set(re.findall(r"#([pm][0-9a-f]+)", shorter))
    given = re.findall(r' id="([pm][0-9a-f]+)"', shorter)
    assert used <= set(given)
    assert len(set(given)) == len(given) > 3
    assert max(map(len, given)) <= 3
    assert "rotate(-0 " not in shorter


def test_words_keep_their_digits(svg: str) -> None:
    assert f">{escape(WORDS)}<" in shorten_svg(svg)


def test_a_style_is_told_once(svg: str) -> None:
    shorter = shorten_svg(svg)
    styles = re.findall(r"\.c[0-9a-f]+\{([^}]*)\}", shorter)
    assert len(set(styles)) == len(styles) > 3
    assert " style=" not in shorter
    assert shorter.count("<g>") == 0


def test_plain_has_hundredths_of_a_point_and_no_comments(svg: str) -> None:
    assert "<!--" not in svg
    assert not re.search(r' d="[^"]*\.\d{3}', svg)
    plain = strip_svg("<a b='1'>1.23456 <!-- gone --></a>")
    assert plain == "<a b='1'>1.23456</a>"

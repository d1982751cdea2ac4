"""Pictures inside the report: as lines where there is room for them, else as dots."""

import base64
import re
from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup

from linbench.report.figure import Drawing

PICTURES_BYTES = 3_400_000
"""The most bytes of all pictures of a page; where they have more, the largest are drawn as dots. A page of
5 MB is still sent by mail and opened at once."""

COARSE = 96
"""The dots per inch of these: the pixels of an inch on a page."""

WORTH_DOTS = 40_000
"""The bytes below which lines are kept: pictures of dots took 60 kB on average (results/h200)."""


class Picture(NamedTuple):
    """The source of an image, and how many inches wide it is meant to be."""

    source: Markup
    inches: float


def embed(drawings: Iterable[Drawing]) -> dict[str, Picture]:
    """Return pictures as data URIs, by the slugs of their drawings; none for a drawing that shows nothing."""
    by_slug = {drawing.slug: drawing for drawing in drawings}
    pictures = dict[str, Picture]()
    for slug, drawing in by_slug.items():
        drawn = drawing.pictures(["svg"])
        if drawn:
            pictures[slug] = _lines(drawn["svg"].decode())
    for slug in sorted(pictures, key=lambda slug: len(pictures[slug].source), reverse=True):
        lines = pictures[slug]
        if len(lines.source) < WORTH_DOTS:
            break
        if sum(len(picture.source) for picture in pictures.values()) > PICTURES_BYTES:
            png = base64.b64encode(by_slug[slug].pictures(["png"], dots=COARSE)["png"]).decode()
            dots = lines._replace(source=Markup(f"data:image/png;base64,{png}"))
            pictures[slug] = min(lines, dots, key=lambda picture: len(picture.source))
    return pictures


def _lines(svg: str) -> Picture:
    """Return an SVG as a data URI that stands between single quotes."""
    size = re.search(r'viewBox="0 0 ([\d.]+) ', svg)
    assert size, "matplotlib says how large its pictures are"
    for sign, code in (("%", "%25"), ("#", "%23"), ("'", "%27"), ("&", "&amp;")):
        svg = svg.replace(sign, code)
    return Picture(Markup(f"data:image/svg+xml;charset=utf-8,{svg}"), round(float(size[1]) / 72, 2))

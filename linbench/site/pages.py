"""All pages of the site, made of stored results: the same results make the same bytes."""

from collections.abc import Iterable
from importlib.resources import files

from linbench.claims.stored_results import Stored
from linbench.report.figure import Drawing
from linbench.site.claims import claim_pages
from linbench.site.findings import Findings
from linbench.site.leaderboard import answers, front_page
from linbench.site.published import published_pages
from linbench.site.render import Site
from linbench.site.submissions import submissions_page
from linbench.site.tasks import task_pages
from linbench.site.variants import variant_pages

ASSETS = ("site.css", "site.js")


def site_of(stored: Stored) -> Site:
    """Return the site that stored results make."""
    return site_from(Findings(stored))


def site_from(findings: Findings) -> Site:
    """Return the site of what stored results say."""
    found = answers(findings)
    facets = [facet for own in found.values() for facet in own]
    made = [
        front_page(findings, found),
        *variant_pages(findings, facets),
        *task_pages(findings),
        *claim_pages(findings),
        *published_pages(findings),
        submissions_page(findings, facets),
    ]
    drawings = {drawing.slug: drawing for each in made for drawing in each.drawings}
    assets = {name: (files("linbench.site") / name).read_bytes() for name in ASSETS}
    return Site([each.page for each in made], {**assets, **_pictures(drawings.values())})


def _pictures(drawings: Iterable[Drawing]) -> dict[str, bytes]:
    """Return each figure as SVG by its path."""
    drawn = {drawing.slug: drawing.pictures(["svg"]) for drawing in drawings}
    return {f"pictures/{slug}.svg": one["svg"] for slug, one in drawn.items() if one}

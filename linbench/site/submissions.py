"""The page of submissions: what authors have measured of their own layers, and nobody has run again."""

from collections.abc import Sequence

from linbench.report.tables.profile import words
from linbench.results.profile import Facet
from linbench.results.submission import Submission
from linbench.site.findings import SUBMISSIONS, Findings
from linbench.site.leaderboard import named
from linbench.site.render import Made, grid, page


def submissions_page(findings: Findings, facets: Sequence[Facet]) -> Made:
    """Return the page of submissions.

    Args:
        findings: what is stored.
        facets: the quantities that variants are ranked by, in their order.
    """
    shown = [
        {
            "file": one.folder.name,
            "about": one.about,
            "facts": grid(["", "stated by its author"], _facts(one)),
            "places": _places(one, facets),
        }
        for one in findings.submissions
    ]
    return Made(page(SUBMISSIONS, "submissions", up="", submissions=shown))


def _facts(one: Submission) -> list[list[str]]:
    """Return the statement of the author, and the hash."""
    about = one.about
    if about is None:
        return []
    return [
        ["layer", about["layer"]],
        ["suite", about["suite"]],
        ["command", about["command"]],
        ["version of linbench", about["linbench"]],
        ["results", f"{about['rows']:,}"],
        ["hash", about["hash"]],
    ]


def _places(one: Submission, facets: Sequence[Facet]) -> str:
    """Return the table of the places of a submission in all quantities that it has; empty if it has none."""
    labels = {result["label"] for result in one.all()}
    rows = [
        [
            named(facet),
            words(facet, facet.estimates[label]),
            f"{facet.ranks(label)} of {len(facet.estimates)}",
        ]
        for facet in facets
        for label in facet.estimates
        if label in labels
    ]
    columns = ["quantity", "estimate", "rank"]
    return grid(columns, rows, numbers=columns[1:]) if rows else ""

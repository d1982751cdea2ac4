"""The page of a claim: its sentence and rules, the verdict, what it lacks, and what decides it."""

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from linbench.claims.figure import drawings
from linbench.claims.page import MEASURES, RULES, about, has_figure, heading, line, measure_rows, slug, tally
from linbench.claims.requirements import missing_requirements
from linbench.claims.verdict import Ruling, Verdict
from linbench.report.figure import Drawing
from linbench.site.findings import Findings, variants_in
from linbench.site.render import Made, grid, link, page


def claim_pages(findings: Findings) -> Iterator[Made]:
    """Yield the list of claims, and the page of each."""
    columns = ["claim", "verdict", "section", "says", "why"]
    rows = []
    for one in findings.verdicts:
        name, outcome, says, why = line(one)
        rows.append([link(name, f"{name}.md"), outcome, one.claim.section, Markup(says), why])
    lead = (
        f"Claims of the literature, each decided by a rule that was written down. {tally(findings.verdicts)}"
    )
    table = grid(columns, rows)
    yield Made(
        page(
            "claims/index.md",
            "index",
            title="Claims",
            lead=lead,
            choose="verdict, section",
            table=table,
        )
    )
    for one in findings.verdicts:
        figures = {drawing.slug: drawing for drawing in drawings(one)}
        values = _values(one, figures)
        yield Made(page(f"claims/{one.claim.id}.md", "claim", up="../", **values), list(figures.values()))


def _values(one: Verdict, figures: dict[str, Drawing]) -> dict[str, Any]:
    claim = one.claim
    return {
        "id": claim.id,
        "section": claim.section,
        # these are words of the claim's own file, not of results
        "says": Markup(claim.text.says),
        "about": [
            (name, Markup(f"`{words}`" if name in RULES else words)) for name, words in about(claim).items()
        ],
        "outcome": one.outcome,
        "qualifiers": "; ".join(one.qualifiers),
        "reason": one.reason,
        "needs": missing_requirements(claim),
        "variants": Markup(", ").join(link(name, f"../variants/{name}.md") for name in variants_in(claim)),
        "measures": _rows(one, None) if claim.measures and not one.rulings else "",
        "rulings": [
            {
                "heading": "; ".join([heading(ruling), *ruling.qualifiers]),
                "measures": _rows(one, ruling),
                "drawing": figures[slug(claim, ruling)] if has_figure(claim, ruling) else None,
            }
            for ruling in one.rulings
        ],
    }


def _rows(one: Verdict, ruling: Ruling | None) -> str:
    """Return the measures of a claim, with what each came to on the device of a ruling."""
    rows: Sequence[Sequence[str]] = measure_rows(one.claim, ruling.evidence if ruling else None)
    return grid(MEASURES if ruling else MEASURES[:2], rows)

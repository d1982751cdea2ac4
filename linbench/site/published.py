"""The page of a published table: what was printed beside our runs of the same cells."""

from collections.abc import Iterator

from linbench.report.figure import Drawing
from linbench.report.table import Table
from linbench.reproduction.figure import drawing
from linbench.reproduction.page import ledger, of_switches, overview
from linbench.reproduction.ran import Ran
from linbench.site.findings import Findings
from linbench.site.render import Made, grid_of, page


def published_pages(findings: Findings) -> Iterator[Made]:
    """Yield the list of published tables, and the page of each."""
    found = findings.tables
    whole = overview({each.one: each.outcomes for each in found})
    table = grid_of(whole, {each.one.id: f"{each.one.id}.md" for each in found})
    lead = (
        "Tables that papers have published, and how many of their values ours are within or outside of. A"
        " value that has not run, or could not be verified, is not comparable."
    )
    yield Made(
        page(
            "tables/index.md",
            "index",
            title="Published tables",
            lead=lead,
            choose="",
            table=table,
        )
    )
    for each in found:
        drawn = [_figure(each)] if each.scored else []
        place = f", on {each.kind}" if each.scored else ""
        shown = [_shown(f"Printed values and ours{place}", ledger(each.one, each.outcomes, each.kind))]
        if any(switch.after.ours is not None for switch in each.switches):
            shown.append(_shown(f"Switches{place}", of_switches(each.one, each.switches, each.kind)))
        values = {"one": each.one, "scored": each.scored, "tables": shown, "drawings": drawn}
        yield Made(page(f"tables/{each.one.id}.md", "published", up="../", **values), drawn)


def _figure(each: Ran) -> Drawing:
    one = drawing([each])
    return one._replace(slug=f"{one.slug}-{each.one.id.lower()}")


def _shown(title: str, table: Table) -> dict[str, str]:
    return {"title": title, "rows": grid_of(table), "caption": table.caption}

"""The page of a variant: what it is, and all that was measured of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean

from linbench.claims.verdict import Verdict
from linbench.experiments.registry import Entry, card, year
from linbench.experiments.system import shipped as systems
from linbench.report.figure import Drawing
from linbench.report.figures.learning_curves import FIGURE as LEARNING_CURVES
from linbench.report.style.sizes import distinct_sizes
from linbench.report.style.wording import TITLES, three_digits, training
from linbench.report.tables.overview import IN_DOUBT, accuracy
from linbench.report.tables.profile import setting, words
from linbench.results.comparison import Comparison
from linbench.results.profile import FORM, Facet
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED, TIMING_LABELS
from linbench.results.speeds import Rate, Speeds
from linbench.results.statistics import share_interval
from linbench.site.figures import FEWEST_POINTS, FEWEST_SPOKES, Panel, Point, Spoke, radar, scatter
from linbench.site.findings import Findings, tasks, variant_of, variants, variants_in
from linbench.site.leaderboard import main_facets, named
from linbench.site.memory import memory_kind, state
from linbench.site.render import Made, grid, link, page, paragraphs

MOST_CURVES = 3
"""The most figures of learning curves on a page."""


def variant_pages(findings: Findings, facets: Sequence[Facet]) -> Iterator[Made]:
    """Yield the page of each variant that comes with linbench.

    Args:
        findings: what is stored.
        facets: the quantities that variants are ranked by, in their order.
    """
    panels, main = _panels(findings, facets), main_facets(findings)
    asked = list({one.slug: one for facet in facets if (one := facet.comparison)}.values())
    claims, trained = _claims(findings.verdicts), _trained(findings.comparisons)
    speeds = _speeds(findings.speeds)
    for name, entry in variants().items():
        drawn = {
            "ranks": _radar(name, main),
            "place": _scatter(name, panels),
        }
        curves = _curves(name, asked) or _curves(name, findings.comparisons)[:1]
        values = {
            "name": name,
            "card": paragraphs(card(entry.cls)),
            "facts": grid(["property", "value"], _facts(name, entry)),
            "measured": _measured(name, facets),
            "drawn": drawn,
            "curves": curves,
            "doubt": IN_DOUBT,
            "trained": grid(TRAINED, trained[name], numbers=TRAINED[-1:]) if name in trained else "",
            "speeds": grid(SPEED_COLUMNS, speeds[name]) if name in speeds else "",
            "claims": [
                (link(one.claim.id, f"../claims/{one.claim.id}.md"), one) for one in claims.get(name, ())
            ],
            "systems": [
                (system_name, system)
                for system_name, system in systems().items()
                if name in {layer.name for layer in system.layers()}
            ],
        }
        made = page(f"variants/{name}.md", "variant", up="../", **values)
        yield Made(made, [*(one for one in drawn.values() if one), *curves])


def _facts(name: str, entry: Entry) -> list[list[str]]:
    """Return what a variant is: its place in history, its memory, and how it learns online."""
    return [
        ["generation", entry.cls.generation],
        ["year", str(year(entry.cls) or "unknown")],
        ["memory", memory_kind(name)],
        ["state", f"{state(name)} floats a layer after T tokens, at width 64 with two heads"],
        *([f"as a learner: {part}", said] for part, said in entry.cls.learner._asdict().items()),
    ]


def _own(facet: Facet, name: str) -> list[str]:
    """Return the labels of a facet that speak of a variant, the best first."""
    return [label for label in facet.ordered if variant_of(label) == name]


def _measured(name: str, facets: Sequence[Facet]) -> str:
    """Return the table of all quantities that were measured of a variant; empty if there are none."""
    rows = [
        [
            named(facet),
            label,
            words(facet, facet.estimates[label]),
            f"{facet.ranks(label)} of {len(facet.estimates)}",
        ]
        for facet in facets
        for label in _own(facet, name)
    ]
    columns = ["quantity", "setting", "estimate", "rank"]
    return grid(columns, rows, numbers=columns[2:]) if rows else ""


def _radar(name: str, facets: Sequence[Facet]) -> Drawing | None:
    """Return the radar of the published setting of a variant, if it was asked enough questions."""
    spokes = []
    for facet in facets:
        ranks = facet.ranks(name)
        if ranks:
            rank = 1 + sum(_better(facet, label, name) for label in facet.estimates)
            spokes.append(Spoke(named(facet), rank, ranks, len(facet.estimates)))
    return radar(name, spokes) if len(spokes) >= FEWEST_SPOKES else None


def _better(facet: Facet, label: str, other: str) -> bool:
    sign = 1 if facet.more_is_better else -1
    return sign * facet.estimates[label].value > sign * facet.estimates[other].value


def _panels(findings: Findings, facets: Sequence[Facet]) -> list[Panel]:
    """Return what every variant is shown among: accuracy by state, and a score by the speed of training."""
    panels = [_by_state(findings.comparisons), _by_speed(facets)]
    return [panel for panel in panels if panel]


def _by_state(comparisons: Sequence[Comparison]) -> Panel | None:
    """Return accuracy by state in one comparison: a ladder before a single budget, then of most variants."""
    candidates = []
    for one in comparisons:
        rows = [row for row in one.rows if row.mean is not None and row.state_floats]
        if one.form == FORM and len(distinct_sizes(rows, "state_floats")) > 1:
            variety = len({row.results[0]["label"] for row in rows})
            candidates.append((one.until_learned and variety >= FEWEST_POINTS, variety, one, rows))
    if not candidates:
        return None
    *_, comparison, rows = max(candidates, key=lambda each: each[:2])
    points: dict[str, list[Point]] = {}
    for row in rows:
        mean = fmean(row.accuracies)
        low, high = share_interval(row.accuracies) or (mean, mean)
        points.setdefault(row.results[0]["label"], []).append(Point(row.state_floats, mean, low, high))
    across, up = "floats carried from token to token, all layers", f"accuracy in {comparison.task}"
    return Panel(across, up, points, more_is_better=False, setting=training(comparison))


def _by_speed(facets: Sequence[Facet]) -> Panel | None:
    """Return the score that most of the variants have whose training was timed, by their speed."""
    speed = next((facet for facet in facets if facet.key == "train"), None)
    scores = [facet for facet in facets if facet.comparison and facet.more_is_better]
    if not speed or not scores:
        return None
    score = max(scores, key=lambda facet: len(facet.estimates.keys() & speed.estimates.keys()))
    points = {
        label: [Point(speed.estimates[label].value, one.value, *one.ends)]
        for label, one in score.estimates.items()
        if label in speed.estimates and isfinite(one.value)
    }
    where = f"{named(score)}: {setting(score)} Speed: {setting(speed)}."
    return Panel("tokens a second in training", named(score), points, more_is_better=True, setting=where)


def _scatter(name: str, panels: Sequence[Panel]) -> Drawing | None:
    labels = sorted({label for panel in panels for label in panel.points if variant_of(label) == name})
    shown = [panel for panel in panels if any(label in panel.points for label in labels)]
    return scatter(name, labels, shown) if labels else None


def _curves(name: str, comparisons: Sequence[Comparison]) -> list[Drawing]:
    """Return the learning curves of a variant in the first comparisons that have any of it."""
    drawn = []
    for comparison in comparisons:
        own = tuple(row for row in comparison.rows if row.results[0]["label"] == name)
        if any(result["curve"] for row in own for result in row.results):
            one = LEARNING_CURVES.drawing(replace(comparison, rows=own, qualifier=""))
            note = LEARNING_CURVES.caption_of(comparison, with_setting=False)
            drawn.append(one._replace(slug=f"{one.slug}-{name}", note=note))
    return drawn[:MOST_CURVES]


TRAINED = ["task", "setting", "form", "device", "model", "accuracy"]
"""The columns of all that was trained of a variant."""


def _trained(comparisons: Sequence[Comparison]) -> Mapping[str, list[list[str]]]:
    """Return rows of the accuracies of each variant in every comparison, by its name."""
    found: dict[str, list[list[str]]] = {}
    for one in comparisons:
        where = link(one.task, f"../tasks/{one.task}.md" if one.task in tasks() else "")
        about = one.title.removeprefix(one.task).strip() or "as it comes"
        for row in one.rows:
            said = [where, about, one.form, one.device, row.label, accuracy(row)]
            if name := variant_of(row.results[0]["label"]):
                found.setdefault(name, []).append(said)
    return found


def _claims(verdicts: Sequence[Verdict]) -> Mapping[str, list[Verdict]]:
    """Return the claims whose measures are of a variant, by its name."""
    found: dict[str, list[Verdict]] = {}
    for one in verdicts:
        for name in variants_in(one.claim):
            found.setdefault(name, []).append(one)
    return found


SPEED_COLUMNS = ["timed", "layer", "load", "device", "thousand tokens a second, by length"]


def _speeds(measured: Sequence[Speeds]) -> Mapping[str, list[list[str]]]:
    """Return rows of the speeds of each variant as it comes, by its name."""
    found: dict[str, list[list[str]]] = {}
    for these in measured:
        for series in these.series:
            if series.side == OURS and series.label == series.mixer:
                timing = REPLAYED if series.rates(REPLAYED) else AS_CALLED
                rates = series.rates(timing)
                if rates:
                    found.setdefault(series.mixer, []).append(_speed_row(these, timing, rates))
    return found


def _speed_row(these: Speeds, timing: str, rates: Mapping[int, Rate]) -> list[str]:
    said = "; ".join(
        f"{length:,}: {three_digits(rate.median / 1e3)}" for length, rate in sorted(rates.items())
    )
    return [
        f"{TITLES[these.question].lower()}, {TIMING_LABELS[timing]}",
        f"{these.form}, d_model {these.d_model}, {these.precision}",
        these.load,
        these.device,
        said,
    ]

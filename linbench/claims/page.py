"""Verdicts for readers: one line each, one at length, and all of them as a page."""

from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

from linbench.claims.claim import Claim
from linbench.claims.evidence import Evidence
from linbench.claims.looks import ERROR, LOOKS
from linbench.claims.methods import METHODS
from linbench.claims.requirements import missing_requirements
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import NOTHING_TRAINED, REFUTED, SUPPORTED, UNDECIDED, Ruling, Verdict
from linbench.common import escape
from linbench.common.files import file_name, pictures_folder
from linbench.common.text import pluralize
from linbench.report.terminal import markdown

LINE = ["claim", "verdict", "says", "why"]
"""The columns of `line`."""

MEASURES = ["measure", "what it is", "value", "made of"]
"""The columns of `measure_rows`."""

RULES = ("Premise", "Supported if", "Refuted if")
"""The parts of `about` that are rules; the premise belongs to both."""

HEAD = """# Published claims, tested

{answer}

```
{command}
```

writes this page from stored results and from tables that need no training.
"""


def line(verdict: Verdict) -> list[str]:
    """Return a claim's id, verdict and statement, and why: the values that decide it, or a reason."""
    why = [verdict.brief or verdict.values, *verdict.qualifiers]
    return [verdict.claim.id, verdict.outcome, verdict.claim.text.says, "; ".join(why)]


def tally(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have each verdict, in one sentence."""
    why = _why_undecided(verdicts)
    return f"{pluralize(len(verdicts), 'claim')}: {_outcomes(verdicts)}{f' ({why})' if why else ''}."


def _outcomes(verdicts: Sequence[Verdict]) -> str:
    return ", ".join(f"{_count(verdicts, each)} {each}" for each in (SUPPORTED, REFUTED, UNDECIDED))


def _why_undecided(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims are undecided for each kind of reason; empty if none is."""
    waiting, unrun, run = _undecided(verdicts)
    over = sum(verdict.complete for verdict in run)
    parts = [
        (waiting, "waiting for something that linbench does not have"),
        (unrun, "not run yet"),
        (run, f"run without a clear answer{f', {over} of which no further seed can decide' if over else ''}"),
    ]
    return ", ".join(f"{len(those)} {words}" for those, words in parts if those)


def _count(verdicts: Sequence[Verdict], outcome: str) -> int:
    return sum(verdict.outcome == outcome for verdict in verdicts)


def _undecided(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[Verdict], list[Verdict]]:
    """Return the undecided claims: those that need something, those not run yet, and all others."""
    undecided = [verdict for verdict in verdicts if verdict.outcome == UNDECIDED]
    waiting = [verdict for verdict in undecided if verdict.waits]
    unrun = [verdict for verdict in undecided if not verdict.waits and not verdict.rulings]
    run = [verdict for verdict in undecided if verdict.rulings]
    return waiting, unrun, run


def detail(verdict: Verdict, stored: Stored, *, beside: Path | None = None) -> list[str]:
    """Return a claim at length, as lines of Markdown without a heading.

    Args:
        verdict: the verdict on the claim.
        stored: the results that it rests on.
        beside: the file that it is written to, if pictures are to be shown.
    """
    claim, outcome = verdict.claim, f"- **{verdict.outcome}**"
    lines = [claim.text.says, ""]
    for name, words in about(claim).items():
        lines.append(f"- {name}: {f'`{words}`' if name in RULES else words}")
    if verdict.qualifiers:
        outcome += f" ({escape.markdown('; '.join(verdict.qualifiers))})"
    if verdict.reason:
        outcome += f": {escape.markdown(verdict.reason)}"
    lines.append(outcome)
    if claim.measures and not verdict.rulings:
        lines += ["", "What decides it:", "", measure_table(claim)]
    for ruling in verdict.rulings:
        title = escape.paragraph("; ".join([heading(ruling), *ruling.qualifiers]))
        lines += ["", f"{title}:", "", measure_table(claim, ruling.evidence)]
        lines += _pictures(verdict, ruling, stored, beside)
    return lines


def _pictures(verdict: Verdict, ruling: Ruling, stored: Stored, beside: Path | None) -> list[str]:
    claim = verdict.claim
    lines: list[str] = []
    if beside is not None and has_figure(claim, ruling):
        folder = escape.url(Path(pictures_folder(beside).name))
        lines += ["", f"![{claim.id}, every seed]({folder}/{slug(claim, ruling)}.svg)"]
    if claim.text.figure and ruling.kind != NOTHING_TRAINED:
        for path in stored.pictures(verdict.result_ids(ruling, stored), claim.text.figure):
            lines.append(f"\n{_stored_picture(path, beside and beside.parent)}")
    return lines


def _stored_picture(picture: Path, beside: Path | None) -> str:
    if beside is None:
        return f"Shown in `{escape.one_line(str(picture))}`."
    return f"![{escape.markdown(picture.stem)}]({escape.url(Path(relpath(picture, beside)))})"


def has_figure(claim: Claim, ruling: Ruling) -> bool:
    """Return whether any measure that decides has results: the figure has a row for each of them."""
    return any(ruling.evidence[measure.name].seen for measure in claim.deciding)


def about(claim: Claim) -> dict[str, str]:
    """Return what is known of a claim by headings: source, published numbers, rules, and cautions."""
    text = claim.text
    parts = {
        "Source": text.source,
        "Published": text.published,
        "Setting": text.setting,
        "Rule": text.rule,
        "Here": text.here.strip(),
        "Premise": " ".join(text.premise.split()),
    }
    for name, rule in zip(RULES[1:], claim.rules, strict=False):
        parts[name] = " ".join(rule.text.split())
    if claim.rules and text.dated:
        parts["Dated"] = f"{text.dated} (hash of rules and settings: {claim.fingerprint})"
    parts["Seen before"] = text.seen.strip()
    for number, each in enumerate(text.deviations, 1):
        parts[f"Deviation {number}"] = f"{each.dated}: {each.what.strip()} Seen by then: {each.seen.strip()}"
    parts["Read with care"] = text.care.strip()
    return {name: words for name, words in parts.items() if words}


def heading(ruling: Ruling) -> str:
    """Return the kind of device of a ruling, and the outcome if there is one."""
    place = f"{'With' if ruling.kind == NOTHING_TRAINED else 'On'} {ruling.kind}"
    outcome = [ruling.outcome] if ruling.outcome != UNDECIDED else []
    return ", ".join([place, *outcome])


def measure_table(claim: Claim, evidence: Mapping[str, Evidence] | None = None) -> str:
    """Return `measure_rows` as Markdown; without evidence, only the columns that need none."""
    columns = MEASURES if evidence is not None else MEASURES[:2]
    return markdown(columns, measure_rows(claim, evidence), left=columns)


def measure_rows(claim: Claim, evidence: Mapping[str, Evidence] | None = None) -> list[list[str]]:
    """Return a row for every measure; those that decide nothing come last.

    Args:
        claim: the claim.
        evidence: by the names of measures; adds what each came to, and what that is made of.
    """
    deciding = {measure.name for measure in claim.deciding}
    rows: list[list[str]] = []
    for measure in claim.shown:
        name = measure.name if measure.name in deciding else f"{measure.name} (not in the rules)"
        # these are words of the claim's own file, not of results
        row: list[str] = [escape.Markdown(name), escape.Markdown(measure.describe())]
        if evidence is not None:
            row += [str(evidence[measure.name]), evidence[measure.name].out_of]
        rows.append(row)
    return rows


def slug(claim: Claim, ruling: Ruling) -> str:
    """Return the name of the picture of a ruling, without its ending."""
    return f"{claim.id}-{file_name(ruling.kind)}"


def page(verdicts: Sequence[Verdict], stored: Stored, *, command: str, beside: Path) -> str:
    """Return all verdicts as a page of Markdown.

    Args:
        verdicts: in the order in which they are to appear.
        stored: the results that they rest on.
        command: the command that writes the page.
        beside: the file that it is written to.
    """
    sections: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        sections.setdefault(verdict.claim.section, []).append(verdict)
    parts = [HEAD.format(answer=_answer(verdicts), command=escape.one_line(command)), _overview(sections)]
    for section, own in sections.items():
        rows = [_linked(*line(verdict)) for verdict in own]
        parts.append(f"## {section}\n\n{markdown(LINE, rows, left=LINE)}\n")
    parts.append(METHODS)
    for section, own in sections.items():
        parts.append(f"## {section}: every claim\n")
        for verdict in own:
            lines = [f"### {verdict.claim.id}", "", *detail(verdict, stored, beside=beside)]
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _answer(verdicts: Sequence[Verdict]) -> str:
    """Return the answer of the page, in five lines."""
    return "\n".join(
        [
            f"- {pluralize(len(verdicts), 'published claim')}: **{_outcomes(verdicts)}**.",
            f"- Undecided: {_why_undecided(verdicts) or 'none'}.",
            "- A verdict follows from a written rule, asked of every seed. The chance that any verdict is"
            f" wrong is at most {ERROR:.0%}. A claim needs {LOOKS[0]} seeds, and more where they disagree.",
            "- Many results are older than the rules, so the rules are not blind predictions (see below, *How"
            " verdicts are made*).",
            "- `linbench claims C13` shows one claim with its numbers; `linbench claims C17 --run` runs what"
            " is missing.",
        ]
    )


def _overview(sections: Mapping[str, Sequence[Verdict]]) -> str:
    """Return a table of the claims with each verdict, section by section."""
    outcomes = [SUPPORTED, REFUTED, UNDECIDED]
    rows: list[list[str]] = []
    for section, own in sections.items():
        row: list[str] = [escape.Markdown(section)]
        for outcome in outcomes:
            links = [_link(each.claim.id) for each in own if each.outcome == outcome]
            row.append(escape.Markdown(", ".join(links) or "–"))
        rows.append(row)
    columns = ["section", *outcomes]
    return markdown(columns, rows, left=columns) + "\n"


def _linked(name: str, outcome: str, says: str, why: str) -> list[str]:
    """Return a line for the page: its claim is a link, and the statement is Markdown already."""
    return [escape.Markdown(_link(name)), outcome, escape.Markdown(says), why]


def _link(claim: str) -> str:
    return f"[{claim}](#{claim.lower()})"


_TEXT = (
    "says", "source", "published", "tier", "setting", "rule", "here", "care",
    "premise", "supported", "refuted", "dated", "seen", "deviations",
)  # fmt: skip
"""The fields of a claim that stand in its JSON."""


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict with its evidence as values of JSON."""
    claim = verdict.claim
    return {
        "id": claim.id,
        "section": claim.section,
        **claim.text.model_dump(mode="json", include=set(_TEXT)),
        "hash": claim.fingerprint if claim.rules else None,
        "measures": {name: measure.describe() for name, measure in claim.measures.items()},
        "needs": missing_requirements(claim),
        "verdict": verdict.outcome,
        "why": verdict.reason,
        "qualifiers": list(verdict.qualifiers),
        "devices": [_ruling_json(ruling) for ruling in verdict.rulings],
    }


def _ruling_json(ruling: Ruling) -> dict[str, Any]:
    return {
        "device": ruling.kind,
        "seeds": ruling.tally.seeds,
        "verdict": ruling.outcome,
        "why": ruling.reason,
        "qualifiers": list(ruling.qualifiers),
        "figures": {name: evidence.to_json() for name, evidence in ruling.evidence.items()},
    }

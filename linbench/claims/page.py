"""Verdicts for readers: a line each, one at length, and all of them as a page."""

from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from linbench.claims.claim import Claim
from linbench.claims.requirements import unmet
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import NOTHING_TRAINED, REFUTED, SUPPORTED, UNDECIDED, Found, Ruling, Verdict
from linbench.common import escape
from linbench.common.files import file_name
from linbench.common.text import counted
from linbench.report.terminal import markdown

HEAD = """# What the literature says, put to the test

```
{command}
```

writes this page from what is stored and from what needs no training; `linbench claims C17` has one of them, what would decide it and what that costs,
`linbench claims C17 --run` runs what is missing.

**Many results are older than the rules.** The rules first stood in `linbench/claims` with commit 775f32cc. Of the 1,652 results of cells directly in
`results/h200`, 1,223 are of earlier commits: most of the suites `zoo` and `zoo-native`, which several claims look at. docs/results.md as it was two hours
before printed the figures of C9 and C13. Whoever wrote the rules could have known these. All results in folders named `claims` are of later commits, and the
rule of C76 was written before speeds at its shapes were looked at.

Thresholds are from where the claims were gathered. Since then a clause of C56 was struck out and C57 was given a premise, both of which "here" tells. Where a
rule could not be carried over as it stands, "here" says what is done in its place. Where none was given for the other side, a claim is refuted where what
should fail does as well as what should succeed, where a gap that should be there is none, or where a bound does not hold; between the two it is undecided.

The learning rate of every model is chosen on two tuning seeds. Many results were chosen by the rule of their day, on one tuning seed, and of equally accurate
rates the upper of the middle. Where a search on two seeds was not run, these count, and every verdict that rests on one says "learning rate chosen on one
tuning seed".

Three seeds at least count for every figure, shown as mean ± standard deviation, or as the best of them where that is what was published. A run that was
still getting better (`undertrained`), or whose learning rate lies on the edge of all that were tried or beside one that failed (`lr_edge`, `lr_untried`),
decides nothing, and no verdict stands that would be another without any one seed of any one figure. Where all that a claim lacks is that runs were still
getting better, or have not come to what both its rules ask for, every run of it is asked again with twice the training, searches too, then with four times
and with eight; no budget is looked at beyond the first that is enough. Results of two kinds of devices never decide a claim together; but where nothing of
it was run on a device, that begins with the training that others have come to. What both rules ask for is of C24, whose runs had come to it, and of C31 and
C57, whose runs had learned nothing when more training was first asked for because of it.

A run that was still getting better may stay as it is, or get as good as can be: where a measure has a best, as accuracy has, its figure is then known between
two numbers, and a verdict stands where the rules say one thing of all that lies between, whichever seed is left out. Such figures are shown as "0.871 to
1.000"; where all runs are there with more training, too, these count instead. The largest setting up to which all reach so much is known where a run that was
still getting better lies beyond one that does not. This came after most runs had been looked at; no rule of a claim was changed for it. A best of some seeds
had counted whatever their marks; now it lies between the best that any was and what more training could make of those that are marked, which took C36's verdict
from it. In C53 and C75, which ask what depths and rates are enough, marks do not count, as "here" says.

Settings of C2 to C4 were changed after C2 and C4 had been looked at, as "here" says of C2; their rules are as they were, and nothing that was run before
counts.

A speed is the median over calls that are timed one after the other, ± half of what lies between their fifths: on a GPU of what the device takes alone, on a
CPU of what a caller waits. No verdict stands that would be another with any one speed at either of its fifths. What was timed while others were at work
(`busy`), or in fewer than five calls, decides nothing and is timed again. What was timed while the clock was held back (`throttled`) counts: full load takes
a GPU to its limit of power, when it trains as when it is timed, and slows most what needs most power. The mark does not tell power from heat.
"""


MANY = 4
"""More figures than these stand at length alone."""


def line(verdict: Verdict) -> list[str]:
    """Its id, answer, what it says, and why: the figures that decide it with what limits them, or why it is
    undecided."""
    return [
        verdict.claim.id,
        verdict.answer,
        verdict.claim.text.says,
        "; ".join([verdict.why or _by(verdict), *verdict.qualifiers]),
    ]


def _by(verdict: Verdict) -> str:
    ruling = next(ruling for ruling in verdict.rulings if ruling.answer == verdict.answer)
    told = [f"{name} {ruling.figures[name]}" for name in verdict.claim.deciding]
    return ", ".join(told) if len(told) <= MANY else f"by {counted(len(told), 'figure')}"


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many of each answer."""
    answers = [verdict.answer for verdict in verdicts]
    waiting = sum(not verdict.rulings and verdict.why.startswith("needs") for verdict in verdicts)
    return (
        f"{counted(len(verdicts), 'claim')}: {answers.count(SUPPORTED)} supported, {answers.count(REFUTED)}"
        f" refuted, {answers.count(UNDECIDED)} undecided, of which {waiting} need what is not there."
    )


def detail(verdict: Verdict, stored: Stored, *, beside: Path | None = None) -> list[str]:
    """A claim at length, as Markdown without its heading. beside: the file that it is written to, where its
    `pictures` are to be seen in it."""
    claim, text = verdict.claim, verdict.claim.text
    lines = [
        text.says,
        "",
        *(f"- {name}: {f'`{words}`' if name in RULES else words}" for name, words in about(claim).items()),
    ]
    limited = f" ({escape.markdown('; '.join(verdict.qualifiers))})" if verdict.qualifiers else ""
    lines.append(
        f"- **{verdict.answer}**{limited}{': ' + escape.markdown(verdict.why) if verdict.why else ''}"
    )
    if claim.measures and not verdict.rulings:
        lines += ["", "What decides it:", "", table(claim)]
    for ruling in verdict.rulings:
        told = escape.paragraph("; ".join([where(ruling), *ruling.qualifiers(claim)]))
        lines += ["", f"{told}:", "", table(claim, ruling.figures)]
        if beside is not None and ruling.seen:
            lines += [
                "",
                f"![{claim.id}, every seed]({_url(Path(pictures(beside).name))}/{slug(claim, ruling)}.png)",
            ]
        if (kind := text.figure) and ruling.device != NOTHING_TRAINED:
            lines += [
                f"\n{_shown(path, beside and beside.parent)}"
                for path in stored.pictures(verdict.ids(ruling, stored), kind)
            ]
    return lines


def _shown(picture: Path, beside: Path | None) -> str:
    if beside is None:
        return f"Shown in `{escape.one_line(str(picture))}`."
    return f"![{escape.markdown(picture.stem)}]({_url(Path(relpath(picture, beside)))})"


def _url(path: Path) -> str:
    """Return a relative path as a link has it, also one whose bytes are no UTF-8."""
    return quote(path.as_posix(), errors="surrogateescape")


def _one_line(text: str) -> str:
    return " ".join(text.split())


RULES = ("Supported", "Refuted")
"""Of what is `about` a claim, what is code."""


def about(claim: Claim) -> dict[str, str]:
    """Where it is from, what was published, its rules in words and as they are applied, and what to be
    careful with."""
    text, rules = claim.text, zip(RULES, (claim.supported, claim.refuted), strict=True)
    told = {
        "Source": text.source,
        "Published": text.published,
        "Setting": text.setting,
        "Rule": text.rule,
        "Here": text.here.strip(),
    }
    told |= {name: _one_line(rule.text) for name, rule in rules if rule} | {
        "Read with care": text.care.strip()
    }
    return {name: words for name, words in told.items() if words}


def where(ruling: Ruling) -> str:
    """On which kind of device, and what it says there."""
    answer = f", {ruling.answer}" if ruling.answer != UNDECIDED else ""
    training = f", with {ruling.longer} times the training" if ruling.longer > 1 else ""
    return f"{'With' if ruling.device == NOTHING_TRAINED else 'On'} {ruling.device}{training}{answer}"


MEASURES = ["measure", "of", "figure", "out of"]
"""Columns of a ruling."""


def table(claim: Claim, figures: Mapping[str, Found] | None = None) -> str:
    """`measures` as Markdown, without the columns of what they came to where that is not there."""
    columns = MEASURES if figures is not None else MEASURES[:2]
    return markdown(columns, measures(claim, figures), left=columns)


def measures(claim: Claim, figures: Mapping[str, Found] | None = None) -> list[list[str]]:
    """Every measure, with figures also what it came to and what that is made of; those that decide nothing
    stand last."""
    names = [*claim.deciding, *(name for name in claim.measures if name not in claim.deciding)]
    ours = [(name + ("" if name in claim.deciding else " (beside)"), said(claim, name)) for name in names]
    # words of the claim's own file, not of results
    rows: list[list[str]] = [list(map(escape.Markdown, each)) for each in ours]
    if figures is not None:
        rows = [
            [*row, str(figures[name]), figures[name].out_of] for name, row in zip(names, rows, strict=True)
        ]
    return rows


def said(claim: Claim, name: str) -> str:
    """What a measure looks at, in words; also where, if that is not the same for all."""
    measure = claim.measures[name]
    where = [
        f"{name.partition('.')[2] or name} {value}" for name, value in (measure.where | measure.test).items()
    ]
    at = [f"{name} {value}" for name, value in measure.at.items()]
    along = (
        [f"largest {measure.along.removeprefix('task.')} up to which it is {measure.reaching:g}"]
        if measure.reaching is not None
        else []
    )
    best = (
        ["best of the seeds" + (", marked or not" if measure.marked else "")]
        if measure.over == "best"
        else []
    )
    across = [f"mean of {measure.across}"] if measure.across else []
    place = [f"in {measure.cells}"] if len({one.cells for one in claim.measures.values()}) > 1 else []
    return ", ".join(
        [*([measure.model] if measure.model else []), *where, measure.of, *across, *at, *along, *best, *place]
    )


def pictures(page: Path) -> Path:
    """The folder for those of a file: of the same name but for its ending."""
    return page.with_suffix("") if page.suffix else page.with_name(f"{page.name}-pictures")


def slug(claim: Claim, ruling: Ruling) -> str:
    """A name for the file of its picture."""
    return f"{claim.id}-{file_name(ruling.device)}"


def page(verdicts: Sequence[Verdict], stored: Stored, *, command: str, beside: Path) -> str:
    """All of them as Markdown, to be written to a file: a table for each section, then every claim at
    length."""
    parts = [HEAD.format(command=escape.one_line(command)), tally(verdicts) + "\n"]
    sections = list(dict.fromkeys(verdict.claim.section for verdict in verdicts))
    for section in sections:
        own = [verdict for verdict in verdicts if verdict.claim.section == section]
        rows = [
            [escape.Markdown(f"[{name}](#{name.lower()})"), answer, escape.Markdown(says), why]
            for name, answer, says, why in map(line, own)
        ]
        parts.append(
            f"## {section}\n\n{markdown(['claim', 'verdict', 'says', 'why'], rows, left=('claim', 'verdict', 'says', 'why'))}\n"
        )
    for section in sections:
        parts.append(f"## {section}: at length\n")
        for verdict in verdicts:
            if verdict.claim.section == section:
                parts.append(
                    "\n".join([f"### {verdict.claim.id}", "", *detail(verdict, stored, beside=beside)]) + "\n"
                )
    return "\n".join(parts)


def plain(verdict: Verdict) -> dict[str, Any]:
    """As JSON values."""
    text = verdict.claim.text
    return {
        "id": verdict.claim.id,
        "section": verdict.claim.section,
        **text.model_dump(
            include={
                "says",
                "source",
                "published",
                "tier",
                "setting",
                "rule",
                "here",
                "care",
                "supported",
                "refuted",
            }
        ),
        "measures": {name: said(verdict.claim, name) for name in verdict.claim.measures},
        "needs": unmet(verdict.claim),
        "verdict": verdict.answer,
        "why": verdict.why,
        "qualifiers": verdict.qualifiers,
        "devices": [
            {
                "device": ruling.device,
                "longer": ruling.longer,
                "verdict": ruling.answer,
                "why": ruling.why,
                "qualifiers": ruling.qualifiers(verdict.claim),
            }
            | {"figures": {name: found.plain for name, found in ruling.figures.items()}}
            for ruling in verdict.rulings
        ],
    }

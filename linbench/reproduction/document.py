"""The page of published tables: how many values are met, and every table that has run."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from linbench.common import escape
from linbench.common.files import pictures_folder
from linbench.common.text import pluralize
from linbench.report.table import Table
from linbench.reproduction.figure import SLUG
from linbench.reproduction.outcome import Outcome
from linbench.reproduction.page import VERDICTS, ledger, of_switches, overview
from linbench.reproduction.ran import Ran
from linbench.reproduction.schema import NOT_VERIFIED

HEAD = """# Published tables, run again

{answer}

```
{command}
```

writes this page from stored results. `linbench reproduce R9` shows one table, and
`linbench reproduce R9 --run --switches` runs it with its switches.
"""

FIGURE = "Published numbers and ours"


def document(found: Sequence[Ran], *, command: str, beside: Path) -> str:
    """Return what became of published tables as a page of Markdown.

    Args:
        found: the tables, each on the kind of device that is shown.
        command: the command that writes the page.
        beside: the file that it is written to.
    """
    parts = [HEAD.format(answer=_answer(found), command=escape.one_line(command))]
    if any(each.scored for each in found):
        folder = Path(pictures_folder(beside).name)
        parts.append(f"![{FIGURE}]({escape.url(folder)}/{SLUG}.svg)\n")
    parts.append(overview({each.one: each.outcomes for each in found}).body() + "\n")
    for each in found:
        if each.scored:
            parts.append(_section("##", ledger(each.one, each.outcomes, each.kind)))
            if any(switch.after.ours is not None for switch in each.switches):
                parts.append(_section("###", of_switches(each.one, each.switches, each.kind)))
    return "\n".join(parts)


def _within_unverified(of_table: Ran) -> int:
    """Return how many values of a table are within of which the printed number was not read at its source."""
    trusts = [of_table.one.trust(each.cell) for each in of_table.outcomes if each.verdict == "within"]
    return sum(trust in NOT_VERIFIED for trust in trusts)


def _answer(found: Sequence[Ran]) -> str:
    """Return the answer of the page, a line for each part of it."""
    outcomes = [outcome for each in found for outcome in each.outcomes]
    unverified = sum(map(_within_unverified, found))
    counts = Counter(outcome.verdict for outcome in outcomes)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    reasons = Counter(map(_why_not, (each for each in outcomes if each.verdict == "not comparable")))
    why = "; ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    not_read = (
        f"Counted as within: {pluralize(unverified, 'value')} whose printed number was not read at its"
        " source. If ours misses such a number, it counts as not comparable, not as outside."
    )
    lines = [
        f"{pluralize(len(outcomes), 'printed value')} of {pluralize(len(found), 'table')}: **{verdicts}**.",
        f"Not comparable: {why or 'none'}.",
        *([not_read] if unverified else []),
        "Our number is chosen among settings and seeds as the paper chose. It is within if it is at most as"
        " many points away as its table allows, which includes the error of reading a figure.",
        "Switches change one thing of the set-up. What was expected of each was written before it ran.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _why_not(outcome: Outcome) -> str:
    if outcome.left:
        return "not run yet, or in part"
    if outcome.ours is not None:
        return "not met, but the printed number could not be verified"
    return "that cannot run here" if outcome.reason.startswith("needs ") else "with a run that has no score"


def _section(level: str, table: Table) -> str:
    shown = table.without_empty()
    title = escape.markdown(shown.title)
    return f"{level} {title}\n\n{shown.body()}\n\n{escape.paragraph(shown.caption)}\n"

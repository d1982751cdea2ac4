"""The front page: every variant by question, with the ranks that intervals leave open."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from linbench.common.files import file_name
from linbench.experiments.registry import year
from linbench.report.figure import Drawing
from linbench.report.figures.ranks import drawing
from linbench.report.table import ABSENT
from linbench.report.tables import by_training
from linbench.report.tables.profile import heading, meaning, setting, words
from linbench.results.profile import Estimate, Facet, accuracy_facet
from linbench.results.ranks import FEWEST_TASKS, ranks_of
from linbench.results.submission import is_marked
from linbench.site.findings import Findings, page_of, tasks, variants
from linbench.site.memory import memory_kind
from linbench.site.render import Made, grid, link, page


class Question(NamedTuple):
    """A question that variants are ranked by.

    Attributes:
        title: its heading.
        asks: the question in a sentence.
        facets: the quantities that answer it, by their keys.
        skill: of the tasks that ask it, too; empty for speeds.
    """

    title: str
    asks: str
    facets: tuple[str, ...]
    skill: str


QUESTIONS = (
    Question("Capacity", "How much does a memory hold?", ("capacity", "tokens"), "remember"),
    Question("Overwriting", "Does a new value take the place of the old one?", ("stale",), "overwrite"),
    Question("Noise", "Does it leave out what does not matter?", ("noise",), "filter"),
    Question("Tracking", "Does it follow a state that every token changes?", ("parity", "group"), "track"),
    Question("In context", "Does it learn a rule from the context?", (), "learn"),
    Question("Reasoning", "Does it go from one stored item to another?", (), "reason"),
    Question("Speed", "How many tokens does a layer take in a second?", ("train", "decode"), ""),
)


UNTIL_LEARNED = "Each model was trained with larger budgets until it had learned, or up to a limit."
ONE_BUDGET = "All models were trained with one budget, so that a slow learner may stand low."


def answers(findings: Findings) -> dict[Question, list[Facet]]:
    """Return the quantities that answer each question."""
    return {question: _facets_of(question, findings) for question in QUESTIONS}


def front_page(findings: Findings, found_by_question: Mapping[Question, Sequence[Facet]]) -> Made:
    """Return the front page.

    Args:
        findings: what is stored.
        found_by_question: the `answers`.
    """
    sections, drawings = [], list[Drawing]()
    for question, found in found_by_question.items():
        drawn = _critical_differences(question.title, findings, question.skill) if question.skill else []
        drawings += drawn
        sections.append(
            {
                "question": question,
                "facets": _told_apart([_ranking(facet) for facet in found]),
                "unmeasured": _unmeasured(question, found),
                "drawings": drawn,
            }
        )
    over_all = _critical_differences("all tasks", findings, "")
    main = main_facets(findings)
    front = page(
        "index.md",
        "leaderboard",
        up="",
        variants=variants(),
        main=main,
        board=_board(main),
        sections=sections,
        over_all=over_all,
        fewest=FEWEST_TASKS,
    )
    return Made(front, [*drawings, *over_all])


def _facets_of(question: Question, findings: Findings) -> list[Facet]:
    """Return the quantities that answer a question: its own, then accuracy in further tasks of its skill.

    Accuracy is that of two variants or more, as one alone has no rank.
    """
    own = [facet for facet in findings.facets if facet.key in question.facets]
    covered = {facet.comparison.task for facet in own if facet.comparison}
    others = [task for task in _tasks(question) if task not in covered]
    more = [accuracy_facet(findings.comparisons, task) for task in others]
    return [*own, *(facet for facet in more if facet and len(facet.estimates) > 1)]


def named(facet: Facet) -> str:
    """Return the quantity, and the task that it is of where its name does not say it."""
    of = f" in {facet.comparison.task}" if facet.key == "accuracy" and facet.comparison else ""
    return f"{heading(facet)}{of}"


def _tasks(question: Question) -> list[str]:
    return sorted(name for name, entry in tasks().items() if entry.cls.skill == question.skill)


def _board(main: Sequence[Facet]) -> Markup:
    """Return the table of all variants: what each is, and the main quantities of every question."""
    columns = ["variant", "generation", "memory", "year", *map(named, main)]
    rows = [
        [
            link(name, f"variants/{name}.md"),
            entry.cls.generation,
            memory_kind(name),
            str(year(entry.cls) or ABSENT),
            *(_cell(facet, name) for facet in main),
        ]
        for name, entry in variants().items()
    ]
    labels = dict.fromkeys(label for facet in main for label in facet.estimates if is_marked(label))
    rows += [
        [link(label, page_of(label)), ABSENT, ABSENT, ABSENT, *(_cell(facet, label) for facet in main)]
        for label in labels
    ]
    return grid(columns, rows, numbers=columns[3:])


def main_facets(findings: Findings) -> list[Facet]:
    """Return one facet for each quantity, that of the comparison which tells most.

    Of old values after overwriting, those of the number of variables that most variants were asked.
    """
    by_key: dict[str, Facet] = {}
    seen: set[tuple[str, int | None]] = set()
    for facet in findings.facets:
        first = (facet.key, facet.variables) not in seen
        seen.add((facet.key, facet.variables))
        if first and (facet.key not in by_key or _telling(facet) > _telling(by_key[facet.key])):
            by_key[facet.key] = facet
    return list(by_key.values())


def _telling(facet: Facet) -> tuple[bool, int]:
    """Return what decides which of several numbers of variables stands for all."""
    return bool(facet.comparison and facet.comparison.until_learned), len(facet.estimates)


def _cell(facet: Facet, label: str) -> str:
    ranks = facet.ranks(label)
    return f"{words(facet, Estimate(facet.estimates[label].value))} ({ranks})" if ranks else ABSENT


def _told_apart(rankings: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return rankings of which a second one of the same quantity says so in its title."""
    seen = Counter[str]()
    for ranking in rankings:
        seen[ranking["title"]] += 1
        if seen[ranking["title"]] > 1:
            ranking["title"] += f", setting {seen[ranking['title']]}"
    return rankings


def _ranking(facet: Facet) -> dict[str, Any]:
    """Return the variants of a facet in the order of their estimates, with the ranks that are left open."""
    labels = facet.ordered
    ranks = {label: facet.ranks(label) for label in labels}
    rows = [
        [
            link(label, page_of(label)),
            words(facet, facet.estimates[label]),
            str(ranks[label]),
        ]
        for label in labels
    ]
    task = facet.comparison.task if facet.comparison else ""
    return {
        "title": named(facet),
        "task": task if task in tasks() else "",
        "meaning": meaning(facet),
        "setting": setting(facet),
        "trained": _trained(facet),
        "better": "large" if facet.more_is_better else "small",
        "open": len(labels) > 1 and all(each and each == (1, len(labels)) for each in ranks.values()),
        "table": grid(["variant", heading(facet), "rank"], rows, numbers=[heading(facet), "rank"]),
    }


def _trained(facet: Facet) -> str:
    """Return how long models were trained, in a sentence; empty for speeds."""
    if not facet.comparison:
        return ""
    return UNTIL_LEARNED if facet.comparison.until_learned else ONE_BUDGET


def _unmeasured(question: Question, found: Sequence[Facet]) -> Markup:
    """Return links to the tasks of a question in which no two variants were compared."""
    asked = {facet.comparison.task for facet in found if facet.comparison}
    return Markup(", ").join(link(n, f"tasks/{n}.md") for n in _tasks(question) if n not in asked)


def _critical_differences(title: str, findings: Findings, skill: str) -> list[Drawing]:
    """Return the mean ranks over tasks of a skill, or all, for each folder that has models enough."""
    known = {name for name, entry in tasks().items() if skill in ("", entry.cls.skill)}
    drawn: dict[str, Drawing] = {}
    for data in findings.folders:
        asked = [comparison for comparison in data.comparisons if comparison.task in known]
        for name, comparisons in by_training(asked).items():
            if ranks := ranks_of(comparisons):
                one = drawing(f"{title}, {name}", ranks)
                slug = file_name(f"{one.slug} {one.fingerprint[:8]}")
                drawn[slug] = one._replace(slug=slug)
    return list(drawn.values())

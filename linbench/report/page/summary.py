"""The summary at the head of the report: what was run, on what, and which models did best."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linbench.common.text import pluralize
from linbench.report.data import ReportData
from linbench.report.page.tables import device_of
from linbench.report.style.colors import ink, styles
from linbench.results.comparison import Comparison, Row
from linbench.results.probes import asked_groups, model_of
from linbench.results.record import NO_VERDICT, seed_of
from linbench.results.schema import Result

SHOWN = 6
"""The models of a ranking that are shown at once; the others are folded."""

MOST_NAMED = 4
"""The most devices, commits or tasks that a sentence names."""


def facts(data: ReportData, answers: Sequence[str], aside: Sequence[str]) -> list[tuple[str, str]]:
    """Return what was run and on what, as names with sentences.

    Args:
        data: the results.
        answers: the verdicts on claims.
        aside: names of files that could not be read.
    """
    found = {
        "Trained": _trained(data),
        "Asked": _asked(data),
        "Measured": _measured(data),
        "Device": _by_count(map(device_of, data.results)),
        "Code": _by_count(map(_commit, data.results)),
        "In doubt": _in_doubt(data.comparisons),
        "Failures": _ended(data.cells),
        "Claims": _tally(answers),
        "Unreadable": f"{pluralize(len(aside), 'file')} that could not be read" if aside else "",
    }
    return [(name, words) for name, words in found.items() if words]


def _trained(data: ReportData) -> str:
    if not data.cells:
        return ""
    reports = [result for result in data.cells if result["purpose"] == "report"]
    tuning = len(data.cells) - len(reports)
    tasks = dict.fromkeys(one.task for one in data.comparisons)
    seeds = sorted({seed_of(result) for result in reports})
    models = {row.results[0]["label"] for one in data.comparisons for row in one.rows}
    chosen = f", and {_count(tuning, 'more run')} to choose learning rates" if tuning else ""
    return (
        f"{pluralize(len(models), 'model')} on {_named(list(tasks))} in"
        f" {pluralize(len(data.comparisons), 'comparison')}: {_count(len(reports), 'run')} with"
        f" {'seed' if len(seeds) == 1 else 'seeds'} {_named(list(map(str, seeds)))}{chosen}"
    )


def _asked(data: ReportData) -> str:
    if not data.pretrained:
        return ""
    tasks = dict.fromkeys(result["probe"]["task"]["name"] for result in data.pretrained)
    models = set(map(model_of, data.pretrained))
    return (
        f"{pluralize(len(models), 'language model')} on {_named(list(tasks))} in"
        f" {pluralize(len(asked_groups(data.pretrained)), 'comparison')}"
    )


def _measured(data: ReportData) -> str:
    parts = []
    if data.speeds:
        parts.append(f"{_count(len(data.speeds), 'speed')} of layers")
    if data.benchmarks:
        number = _count(len(data.benchmarks), "speed")
        parts.append(f"{number} of kernels, training steps and the drawing of examples")
    return " and ".join(parts)


def _count(number: int, what: str, several: str = "") -> str:
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def _commit(result: Result) -> str:
    measured = result["environment"]
    if not measured["commit"]:
        return f"linbench {measured['packages'].get('linbench', 'from source')}"
    return f"commit {measured['commit'][:10]}{' with changes' if measured.get('dirty') else ''}"


def _by_count(names: Iterable[str]) -> str:
    """Return names with how often they occur, the most frequent first."""
    found = Counter(names).most_common()
    if len(found) == 1:
        return found[0][0]
    return _named([f"{name} ({pluralize(count, 'result')})" for name, count in found])


def _named(names: Sequence[str]) -> str:
    left = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {left} more" if left > 0 else "")


def _in_doubt(found: Sequence[Comparison]) -> str:
    rows = [row for one in found for row in one.rows]
    doubtful = [row for row in rows if not row.eligible]
    if not doubtful:
        return ""
    marks = Counter(mark for row in doubtful for mark in _marks(row))
    words = ", ".join(f"{count} {mark}" for mark, count in marks.most_common())
    return (
        f"{len(doubtful)} of {_count(len(rows), 'accuracy', 'accuracies')} take part in no verdict ({words})"
    )


def _marks(row: Row) -> set[str]:
    return {mark for result in row.results for mark in result["marks"] if mark in NO_VERDICT}


def _ended(cells: Sequence[Result]) -> str:
    statuses = Counter(result["status"] for result in cells if result["status"] != "ok")
    words = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    return f"{_count(statuses.total(), 'run')}: {words}" if statuses else ""


def _tally(answers: Sequence[str]) -> str:
    return ", ".join(f"{count} {answer}" for answer, count in Counter(answers).most_common())


def rankings(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the models of each comparison, the best first, with the chance level and marks."""
    return [_ranking(comparison) for comparison in found]


def _ranking(comparison: Comparison) -> dict[str, Any]:
    colours = [ink(style.colour) for style in styles([row.results[0] for row in comparison.rows])]
    pairs = sorted(zip(comparison.rows, colours, strict=True), key=lambda pair: _order(pair[0]))
    means = [row.mean for row, _ in pairs]
    rows = [_ranked(_place(row.mean, means), row, colour) for row, colour in pairs]
    seeds = max(len(row.accuracies) for row in comparison.rows)
    chance = comparison.results[0]["chance"]
    return {
        "anchor": comparison.slug,
        "title": f"{comparison.title}, {comparison.form} form",
        "about": f"{comparison.device}; {pluralize(seeds, 'seed')}; chance {chance:.3f}",
        "chance": _share(chance),
        "best": rows[:SHOWN],
        "others": rows[SHOWN:],
    }


def _order(row: Row) -> tuple[bool, float, str]:
    return (row.mean is None, -(row.mean or 0.0), row.label)


def _place(mean: float | None, means: Sequence[float | None]) -> str:
    """Return the place of a model; models that show the same accuracy share one."""
    if mean is None:
        return "–"
    return str(1 + sum(other is not None and round(other, 3) > round(mean, 3) for other in means))


def _ranked(place: str, row: Row, colour: str) -> Mapping[str, Any]:
    """Return a model as the template shows it: a bar as long as its accuracy, hollow if that is in doubt."""
    return {
        "place": place,
        "model": row.label,
        "accuracy": "–" if row.mean is None else f"{row.mean:.3f}",
        "share": _share(row.mean or 0.0),
        "colour": colour,
        "doubtful": not row.eligible,
        "marks": ", ".join(row.marks),
    }


def _share(value: float) -> str:
    """Return a share as CSS has it."""
    return f"{min(max(value, 0.0), 1.0):.4f}"

"""Variants side by side: the scores of each on every task of a suite, compared with the first one's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from linbench.common.text import pluralize
from linbench.experiments.labels import distinguishing_labels
from linbench.experiments.sizing import TOLERANCE
from linbench.experiments.suite import SuiteBlock, SuiteModel
from linbench.results.comparison import Row, broken_laws, comparisons
from linbench.results.layer_speeds import QUESTIONS, SpeedSelection, layer_key, select_speeds
from linbench.results.record import DIVERGED, FINAL, NO_VERDICT
from linbench.results.schema.cells import CellResult
from linbench.results.speeds import Speeds
from linbench.results.statistics import Difference, holm, welch

ALPHA = 0.05
"""The probability, at most, that any verdict of a table is false."""


class ComparisonRow(NamedTuple):
    """One variant on one task.

    Attributes:
        difference: its mean accuracy less the first variant's, by Welch's t-test; None for the first variant,
            or if either has fewer than two seeds.
        p: the p of the difference, adjusted for all verdicts of the table; None without a verdict.
        verdict: `better`, `worse`, `no difference shown`, or the reason why there is no verdict.
    """

    task: str
    row: Row
    difference: Difference | None
    p: float | None
    verdict: str


@dataclass(frozen=True)
class VariantComparison:
    """A table of variants of one form, so that controlled and native forms never meet."""

    form: str
    first: str
    """The variant that the others are compared with."""
    lines: tuple[ComparisonRow, ...]
    layer_speeds: Mapping[str, Mapping[str, SpeedSelection]]
    """The speeds of layers by task and question, where they were measured."""

    def speeds_of(self, line: ComparisonRow, question: str) -> SpeedSelection | None:
        """Return the speeds of the layers in a line's task; None if they were not measured."""
        return self.layer_speeds.get(line.task, {}).get(question)

    def unmeasured(self, question: str) -> list[ComparisonRow]:
        """Return one line for every layer that was not measured as the others of its task were."""
        found = dict[tuple[str, str], ComparisonRow]()
        for line in self.lines:
            layer, way = layer_key(line.row.results[0]), self.speeds_of(line, question)
            if layer is not None and (way is None or layer not in way.results):
                found.setdefault((layer, "" if way is None else way.description), line)
        return list(found.values())


def compare_variants(
    blocks: Sequence[SuiteBlock], results: Mapping[str, CellResult], speeds: Sequence[Speeds] = ()
) -> list[VariantComparison]:
    """Return a table for each form, in which all models of a block are compared with its first.

    Args:
        blocks: of a suite. A block whose first model has no results is left out.
        results: by the ids of their cells. Models without results are left out.
        speeds: measured speeds of layers; those on the kind of device that models were trained on count.
    """
    forms: dict[str, list[tuple[str, list[Row]]]] = {}
    for block, title in zip(blocks, block_titles(blocks), strict=True):
        rows = _rows(block, results)
        if rows and rows[0].results:
            forms.setdefault(rows[0].results[0]["cell"]["model"]["form"], []).append(
                (title, [row for row in rows if row.results])
            )
    return [_table(form, tasks, speeds) for form, tasks in forms.items()]


def _rows(block: SuiteBlock, results: Mapping[str, CellResult]) -> list[Row]:
    chosen = [[results[cell.id] for cell in cells if cell.id in results] for _, cells in block.rows]
    labels = _labels([model for model, _ in block.rows])
    return [Row(f"{label}{broken_laws(own)}", tuple(own)) for label, own in zip(labels, chosen, strict=True)]


def _labels(models: Sequence[SuiteModel]) -> list[str]:
    """Return labels of models; those that a suite has twice get the settings that it sets for them."""
    names = [model.model for model in models]
    said = [
        distinguishing_labels([other.set for other in models if other.model == model.model])
        for model in models
    ]
    place = [names[:i].count(name) for i, name in enumerate(names)]
    return [
        f"{name} ({words[i]})" if words[i] else name
        for name, words, i in zip(names, said, place, strict=True)
    ]


def block_titles(blocks: Sequence[SuiteBlock]) -> list[str]:
    """Return a title for each block: its task, its preset, and the settings that distinguish it."""
    names = [_name(block) for block in blocks]
    differ = [{**block.task.set, **_mixture(block), **block.point} for block in blocks]
    found = []
    for name, own in zip(names, differ, strict=True):
        alike = [settings for other, settings in zip(names, differ, strict=True) if other == name]
        words = distinguishing_labels(alike)[alike.index(own)]
        found.append(f"{name} {words}" if words else name)
    return found


def _name(block: SuiteBlock) -> str:
    cells = [cell for _, cells in block.rows for cell in cells]
    name, presets = cells[0].task_entry.name, {cell.preset for cell in cells}
    preset = presets.pop() if len(presets) == 1 else None
    return f"{name} {preset}" if preset else name


def _mixture(block: SuiteBlock) -> dict[str, Any]:
    """Return what a suite sets of the mixtures that a block is trained and tested on, in words."""
    found: dict[str, Any] = {}
    for name, mixed in (("train", block.task.train), ("test", block.task.test)):
        if mixed:
            found[name] = ", ".join(_setting_words(part) for part in mixed)
    if block.task.test_lengths:
        found["test_lengths"] = block.task.test_lengths
    return found


def _setting_words(settings: Mapping[str, object]) -> str:
    return " / ".join(f"{name} {value}" for name, value in settings.items())


def _table(form: str, tasks: Sequence[tuple[str, list[Row]]], speeds: Sequence[Speeds]) -> VariantComparison:
    """Return the table of one form. tasks: each with its title and rows, the first variant's first."""
    lines: list[ComparisonRow] = []
    open_verdicts: list[tuple[int, Row, Difference]] = []
    for title, (first, *others) in tasks:
        lines.append(ComparisonRow(title, first, None, None, "compared with"))
        for row in others:
            difference = None
            if min(len(row.accuracies), len(first.accuracies)) > 1:
                difference = welch(row.accuracies, first.accuracies)
            reason = verdict_obstacle(row, first)
            if difference and not reason:
                reason = _win_by_divergence(row, first, difference)
            if difference and not reason:
                open_verdicts.append((len(lines), first, difference))
            lines.append(ComparisonRow(title, row, difference, None, reason or ""))
    adjusted = holm([difference.p for _, _, difference in open_verdicts])
    for (place, first, difference), p in zip(open_verdicts, adjusted, strict=True):
        verdict = f"{_verdict(difference, p)}{_reservation(lines[place].row, first)}"
        lines[place] = lines[place]._replace(p=p, verdict=verdict)
    ways = {title: _layer_speeds(rows, speeds) for title, rows in tasks}
    return VariantComparison(form, tasks[0][1][0].label, tuple(lines), ways)


def _verdict(difference: Difference, p: float) -> str:
    if p > ALPHA:
        return "no difference shown"
    return "better" if difference.mean > 0 else "worse"


def _reservation(row: Row, first: Row) -> str:
    """Return the reservation of a verdict, for states that are not declared; empty if there is none."""
    undeclared = [one.label for one in (row, first) if one.results[0]["model"]["state"] is None]
    if not undeclared:
        return ""
    return f" at equal parameters; the state of {' and of '.join(undeclared)} is undeclared"


def _win_by_divergence(row: Row, first: Row, difference: Difference) -> str | None:
    """Return a reason if the variant that is ahead has diverged seeds.

    They count as chance, which may be more than a run that ended gets.
    """
    ahead = row if difference.mean > 0 else first
    diverged = sum(result["status"] == DIVERGED for result in ahead.results)
    if not diverged:
        return None
    return f"no verdict: {ahead.label} diverged on {diverged} of {pluralize(len(ahead.results), 'seed')}"


def _layer_speeds(rows: Sequence[Row], speeds: Sequence[Speeds]) -> dict[str, SpeedSelection]:
    """Return the speeds of models' layers by question, on the kind of device they were trained on."""
    cell = rows[0].results[0]["cell"]
    layers = {layer for row in rows if (layer := layer_key(row.results[0])) is not None}
    here = [these for these in speeds if these.results[0]["bench"]["device"] == cell["device"]]
    found = {
        question: select_speeds(here, question, layers, length=cell["task"]["settings"].get("seq_len", 0))
        for question in QUESTIONS
    }
    return {question: way for question, way in found.items() if way is not None}


def verdict_obstacle(row: Row, first: Row) -> str | None:
    """Return the reason why two variants get no verdict, without a period; None if they get one."""
    both = (row, first)
    for one in both:
        if broken_laws(one.results):
            return f"no verdict: {one.label}"
    for one in both:
        for result in one.results:
            if result["status"] not in FINAL:
                return f"no verdict: {one.label}, seed {result['cell']['seed']} {result['status']}"
    if len(comparisons([*row.results, *first.results])) > 1:
        return "not comparable: trained, surrounded or run otherwise"
    if apart := _size_difference(row, first):
        return f"not comparable: {apart}"
    for one in both:
        for mark in NO_VERDICT:
            count = sum(mark in result["marks"] for result in one.results)
            if count:
                return f"no verdict: {one.label} {mark} {count}/{len(one.results)}"
    for one in both:
        if len(one.results) < 2:
            return f"no verdict: one seed of {one.label}"
    return None


def _size_difference(row: Row, first: Row) -> str | None:
    """Return in words how sizes differ, where that is by more than `TOLERANCE`.

    States are compared where both are declared; the verdict says where one is not.
    """
    sizes = [one.results[0]["model"] for one in (row, first)]
    states = [size["state"] for size in sizes]
    counts = {"parameters": [size["parameters"] for size in sizes]}
    declared = [state for state in states if state is not None]
    if len(declared) == len(states):
        growing = [one for one, state in zip((row, first), declared, strict=True) if state["cache"]]
        if len(growing) == 1:
            return f"the state of {growing[0].label} grows with the length"
        counts = {"state floats": [state["total"] for state in declared], **counts}
    for quantity, pair in counts.items():
        if max(pair) > (1 + TOLERANCE) * min(pair):
            return f"{pair[0]:,.0f} {quantity} beside {pair[1]:,.0f}"
    return None

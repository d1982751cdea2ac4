"""Variants side by side: the scores of each on every task of a suite, compared with the first one's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from linbench.experiments.labels import distinguishing_labels
from linbench.experiments.sizing import TOLERANCE
from linbench.experiments.suite import SuiteBlock, SuiteModel
from linbench.results.comparison import Row, broken_laws, comparisons
from linbench.results.contrast import AccuracyContrast, Judgement, LearningContrast
from linbench.results.layer_speeds import QUESTIONS, SpeedSelection, layer_key, select_speeds
from linbench.results.learning_time import learning_times
from linbench.results.record import DIVERGED, FINAL, NO_VERDICT
from linbench.results.schema.cells import CellResult
from linbench.results.sizes import count_of, matched_part
from linbench.results.speeds import Speeds
from linbench.results.statistics import Difference, holm
from linbench.results.survival import Time


class ComparisonRow(NamedTuple):
    """One variant on one task.

    Attributes:
        difference: its mean accuracy less the first variant's, with its own interval by Welch's t-test; None
            for the first variant, or if either has fewer than two seeds.
        obstacle: the reason why there is no verdict, without a period; empty if there is one.
        remarks: what a reader of the verdict must know: marks, and sizes that differ.
        accuracy: what is compared; None for the first variant, or if there is no verdict.
        learning: the tokens to learn that are compared, of ladders alone.
        verdict: on accuracy.
        learning_verdict: on the tokens to learn.
    """

    task: str
    row: Row
    difference: Difference | None = None
    obstacle: str = ""
    remarks: tuple[str, ...] = ()
    accuracy: AccuracyContrast | None = None
    learning: LearningContrast | None = None
    verdict: Judgement | None = None
    learning_verdict: Judgement | None = None

    @property
    def times(self) -> tuple[Time, ...]:
        """The tokens that each seed took to learn."""
        return learning_times(self.row)


@dataclass(frozen=True)
class VariantComparison:
    """A table of variants of one form, so that controlled and native forms never meet."""

    form: str
    first: str
    """The variant that the others are compared with."""
    lines: tuple[ComparisonRow, ...]
    layer_speeds: Mapping[str, Mapping[str, SpeedSelection]]
    """The speeds of layers by task and question, where they were measured."""
    tests: int = 0
    """The number of verdicts of all tables, which are corrected together."""

    @property
    def converged(self) -> bool:
        """True if any variant was trained until it was learned."""
        return any(line.learning for line in self.lines)

    def speeds_of(self, line: ComparisonRow, question: str) -> SpeedSelection | None:
        """Return the speeds of the layers in a line's task; None if they were not measured."""
        return self.layer_speeds.get(line.task, {}).get(question)

    def unmeasured(self, question: str) -> list[ComparisonRow]:
        """Return one line for every layer that was not measured as the others of its task were.

        A layer that failed in every run is left out: it would fail again.
        """
        found = dict[tuple[str, str], ComparisonRow]()
        for line in self.lines:
            layer, way = layer_key(line.row.results[0]), self.speeds_of(line, question)
            failed = all(result["status"] not in FINAL for result in line.row.results)
            if layer is not None and not failed and (way is None or layer not in way.results):
                found.setdefault((layer, "" if way is None else way.description), line)
        return list(found.values())


def compare_variants(
    blocks: Sequence[SuiteBlock], results: Mapping[str, CellResult], speeds: Sequence[Speeds] = ()
) -> list[VariantComparison]:
    """Return a table for each form, in which all models of a block are compared with its first.

    Verdicts of all tables are corrected together.

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
    return _judged([_table(form, tasks, speeds) for form, tasks in forms.items()])


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
    """Return the table of one form, without verdicts.

    Args:
        tasks: each with its title and rows, the first variant's first.
    """
    lines = []
    for title, (first, *others) in tasks:
        lines.append(ComparisonRow(title, first))
        lines += [_compared(title, row, first) for row in others]
    ways = {title: _layer_speeds(rows, speeds) for title, rows in tasks}
    return VariantComparison(form, tasks[0][1][0].label, tuple(lines), ways)


def _compared(title: str, row: Row, first: Row) -> ComparisonRow:
    """Return a variant beside the first, with what is to be judged."""
    scores = AccuracyContrast(row.accuracies, first.accuracies)
    difference = scores.difference
    obstacle = verdict_obstacle(row, first)
    if obstacle:
        return ComparisonRow(title, row, difference, obstacle)
    ladders = all("ladder" in result for result in (*row.results, *first.results))
    own, its = learning_times(row), learning_times(first)
    times = LearningContrast(own, its) if ladders and own and its else None
    return ComparisonRow(title, row, difference, "", remarks(row, first), scores, times)


def _judged(tables: Sequence[VariantComparison]) -> list[VariantComparison]:
    """Return tables with the verdicts of all of them, corrected together by Holm's method."""
    contrasts = [
        (one, contrast)
        for one, table in enumerate(tables)
        for line in table.lines
        for contrast in (line.accuracy, line.learning)
        if contrast is not None
    ]
    adjusted = iter(holm([contrast.p for _, contrast in contrasts]))
    count = len(contrasts)
    return [
        replace(
            table, tests=count, lines=tuple(_with_verdicts(line, adjusted, count) for line in table.lines)
        )
        for table in tables
    ]


def _with_verdicts(line: ComparisonRow, adjusted: Iterator[float], tests: int) -> ComparisonRow:
    """Return a line with its verdicts, whose adjusted p are the next."""
    accuracy = line.accuracy and line.accuracy.judge(next(adjusted), tests)
    learning = line.learning and line.learning.judge(next(adjusted), tests)
    return line._replace(verdict=accuracy, learning_verdict=learning)


def remarks(row: Row, first: Row) -> tuple[str, ...]:
    """Return what a verdict on two variants must be read with: marks and statuses, and sizes that differ."""
    found = [
        f"{one.label} {mark} {count}/{len(one.results)}"
        for one in (row, first)
        for mark in (DIVERGED, *NO_VERDICT)
        if (count := sum(mark in (*result["marks"], result["status"]) for result in one.results))
    ]
    undeclared = [one.label for one in (row, first) if one.results[0]["model"]["state"] is None]
    if apart := _size_difference(row, first):
        found.append(apart)
    if undeclared:
        equal = "" if apart else ", numbers of parameters agree"
        found.append(f"the state of {' and of '.join(undeclared)} is undeclared{equal}")
    return tuple(found)


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


def verdict_obstacle(row: Row, first: Row) -> str:
    """Return the reason why two variants cannot be compared, without a period; empty if they can."""
    for one in (row, first):
        if broken_laws(one.results):
            return one.label
    for one in (row, first):
        for result in one.results:
            if result["status"] not in FINAL:
                return f"{one.label}, seed {result['cell']['seed']} {result['status']}"
    if len(comparisons([*row.results, *first.results])) > 1:
        return "trained, surrounded or run otherwise"
    return ""


def _size_difference(row: Row, first: Row) -> str | None:
    """Return in words how sizes differ, where that is by more than `TOLERANCE`.

    States are compared where both are declared, by the `matched_part`.
    """
    sizes = [one.results[0]["model"] for one in (row, first)]
    states = [size["state"] for size in sizes]
    counts = {"parameters": [size["parameters"] for size in sizes]}
    declared = [state for state in states if state is not None]
    if len(declared) == len(states):
        growing = [one for one, state in zip((row, first), declared, strict=True) if state["cache"]]
        if len(growing) == 1:
            return f"the state of {growing[0].label} grows with the length"
        part = matched_part([declared])
        counts = {part: [count_of(state, part) for state in declared], **counts}
    for quantity, pair in counts.items():
        if max(pair) > (1 + TOLERANCE) * min(pair):
            return f"{pair[0]:,.0f} {quantity} beside {pair[1]:,.0f}"
    return None

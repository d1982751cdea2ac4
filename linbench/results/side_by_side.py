"""Variants side by side: on every task of a suite what each scores beside the first, and whether that is a
difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from linbench.common.text import pluralize
from linbench.experiments.labels import distinguishing_labels
from linbench.experiments.sizing import TOLERANCE
from linbench.experiments.suite import SuiteBlock, SuiteModel
from linbench.results.comparison import Row, broken, comparisons
from linbench.results.layer_speeds import ASKED, Way, best_way, layer_of
from linbench.results.record import DIVERGED, FINAL, NO_VERDICT
from linbench.results.schema.cells import CellResult
from linbench.results.speeds import Speeds
from linbench.results.statistics import Difference, holm, welch

ALPHA = 0.05
"""The probability, at most, that any verdict of a table is false."""


class Line(NamedTuple):
    """One variant on one task. difference: its accuracy less that of the first named, by Welch, wherever both
    have two seeds; p: of it, among all verdicts of the table; both None for the first named itself."""

    task: str
    row: Row
    difference: Difference | None
    p: float | None
    verdict: str


@dataclass(frozen=True)
class SideBySide:
    """One table: one form, so that controlled and native never meet."""

    form: str
    first: str
    """The variant that the others are compared with."""
    lines: tuple[Line, ...]
    ways: Mapping[str, Mapping[str, Way]]
    """By task and question how its layers were measured, where they were."""

    def way(self, line: Line, question: str) -> Way | None:
        """How layers beside this one were measured."""
        return self.ways.get(line.task, {}).get(question)

    def unmeasured(self, question: str) -> list[Line]:
        """Of every layer that was not measured as the others beside it were, or where none was, one line."""
        found = dict[tuple[str, str], Line]()
        for line in self.lines:
            layer, way = layer_of(line.row.results[0]), self.way(line, question)
            if layer is not None and (way is None or layer not in way.results):
                found.setdefault((layer, "" if way is None else way.words), line)
        return list(found.values())


def side_by_side(
    blocks: Sequence[SuiteBlock], results: Mapping[str, CellResult], speeds: Sequence[Speeds] = ()
) -> list[SideBySide]:
    """A table for each form; all models of a block stand beside its first. `results` by the ids of their
    cells; models without any are left out, and so is a block whose first has none. `speeds`: what was
    measured of layers, of which those on the same kind of device count."""
    forms: dict[str, list[tuple[str, list[Row]]]] = {}
    for block, title in zip(blocks, titles(blocks), strict=True):
        rows = _rows(block, results)
        if rows and rows[0].results:
            forms.setdefault(rows[0].results[0]["cell"]["model"]["form"], []).append(
                (title, [row for row in rows if row.results])
            )
    return [_table(form, tasks, speeds) for form, tasks in forms.items()]


def _rows(block: SuiteBlock, results: Mapping[str, CellResult]) -> list[Row]:
    chosen = [[results[cell.id] for cell in cells if cell.id in results] for _, cells in block.rows]
    labels = _labels([model for model, _ in block.rows])
    return [Row(f"{label}{broken(own)}", tuple(own)) for label, own in zip(labels, chosen, strict=True)]


def _labels(models: Sequence[SuiteModel]) -> list[str]:
    """Those that a suite has twice are told apart by what it sets for them."""
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


def titles(blocks: Sequence[SuiteBlock]) -> list[str]:
    """The task of each, with its preset where it has one, and what tells it apart from others of that
    name."""
    names, differ = (
        [_name(block) for block in blocks],
        [{**block.task.set, **_mixture(block), **block.point} for block in blocks],
    )
    found = []
    for name, own in zip(names, differ, strict=True):
        alike = [settings for other, settings in zip(names, differ, strict=True) if other == name]
        words = distinguishing_labels(alike)[alike.index(own)]
        found.append(f"{name} {words}" if words else name)
    return found


def _name(block: SuiteBlock) -> str:
    cells = [cell for _, cells in block.rows for cell in cells]
    presets = {cell.preset for cell in cells}
    return (
        f"{cells[0].task_entry.name} {preset}"
        if len(presets) == 1 and (preset := presets.pop())
        else cells[0].task_entry.name
    )


def _mixture(block: SuiteBlock) -> dict[str, Any]:
    parts = {name: getattr(block.task, name) for name in ("train", "test")}
    told = {
        name: ", ".join(" / ".join(f"{setting} {value}" for setting, value in part.items()) for part in of)
        for name, of in parts.items()
        if of
    }
    return told | ({"test_lengths": block.task.test_lengths} if block.task.test_lengths else {})


def _table(form: str, tasks: Sequence[tuple[str, list[Row]]], speeds: Sequence[Speeds]) -> SideBySide:
    lines, ps, firsts = list[Line](), dict[int, float](), dict[int, Row]()
    for title, (first, *others) in tasks:
        lines.append(Line(title, first, None, None, "compared with"))
        for row in others:
            several = min(len(row.accuracies), len(first.accuracies)) > 1
            difference = welch(row.accuracies, first.accuracies) if several else None
            reason = why_not(row, first) or (
                _ahead_by_diverging(row, first, difference) if difference else None
            )
            if difference and not reason:
                ps[len(lines)], firsts[len(lines)] = difference.p, first
            lines.append(Line(title, row, difference, None, reason or ""))
    for (place, _), p in zip(ps.items(), holm(list(ps.values())), strict=True):
        difference = lines[place].difference
        assert difference is not None
        verdict = "no difference shown" if p > ALPHA else "better" if difference.mean > 0 else "worse"
        lines[place] = lines[place]._replace(p=p, verdict=f"{verdict}{_but(lines[place].row, firsts[place])}")
    return SideBySide(
        form, tasks[0][1][0].label, tuple(lines), {title: _ways(rows, speeds) for title, rows in tasks}
    )


def _but(row: Row, first: Row) -> str:
    """What a verdict does not know; empty: nothing."""
    undeclared = [one.label for one in (row, first) if one.results[0]["model"]["state"] is None]
    return (
        f" at equal parameters; the state of {' and of '.join(undeclared)} is undeclared"
        if undeclared
        else ""
    )


def _ahead_by_diverging(row: Row, first: Row, difference: Difference) -> str | None:
    """What keeps a variant that diverged from being called the better one: that counts as chance, which may
    be more than who ends gets."""
    ahead = row if difference.mean > 0 else first
    diverged = sum(result["status"] == DIVERGED for result in ahead.results)
    return (
        f"no verdict: {ahead.label} diverged on {diverged} of {pluralize(len(ahead.results), 'seed')}"
        if diverged
        else None
    )


def _ways(rows: Sequence[Row], speeds: Sequence[Speeds]) -> dict[str, Way]:
    """How the layers of these were measured on the kind of device that they were trained on."""
    cell = rows[0].results[0]["cell"]
    layers = {layer for row in rows if (layer := layer_of(row.results[0])) is not None}
    here = [these for these in speeds if these.results[0]["bench"]["device"] == cell["device"]]
    found = {
        question: best_way(here, question, layers, length=cell["task"]["settings"].get("seq_len", 0))
        for question in ASKED
    }
    return {question: way for question, way in found.items() if way is not None}


def why_not(row: Row, first: Row) -> str | None:
    """What keeps two variants from a verdict, in a sentence without its end; None: nothing."""
    both = (row, first)
    if lawless := next((one for one in both if broken(one.results)), None):
        return f"no verdict: {lawless.label}"
    for one in both:
        if failed := next((result for result in one.results if result["status"] not in FINAL), None):
            return f"no verdict: {one.label}, seed {failed['cell']['seed']} {failed['status']}"
    if len(comparisons([result for one in both for result in one.results])) > 1:
        return "not comparable: trained, surrounded or run otherwise"
    if apart := _sizes_apart(row, first):
        return f"not comparable: {apart}"
    for one in both:
        for mark in NO_VERDICT:
            if count := sum(mark in result["marks"] for result in one.results):
                return f"no verdict: {one.label} {mark} {count}/{len(one.results)}"
    if few := next((one for one in both if len(one.results) < 2), None):
        return f"no verdict: one seed of {few.label}"
    return None


def _sizes_apart(row: Row, first: Row) -> str | None:
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

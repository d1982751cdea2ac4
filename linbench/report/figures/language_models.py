"""Answers of language models that were asked a task: accuracy by slice, and kinds of answers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.answer_kinds import KINDS_NOTE, Answers, draw_answers, shares_of
from linbench.report.style.colors import Style, styles_by_place
from linbench.report.style.labels import MAX_LINES_PER_PANEL, NOT_MEASURED, Named, add_title, label_lines
from linbench.report.style.layout import panel_grid
from linbench.report.style.lines import bin_edges, binned, draw_line, set_metric_axis, set_slice_axis
from linbench.report.style.wording import commits
from linbench.results.probes import AskedGroup, asked_groups, model_of
from linbench.results.record import fingerprint
from linbench.results.schema.pretrained import PretrainedResult

ACROSS = 3
"""The most panels side by side."""

PANEL_INCHES = 4.5
"""The width of each of several panels: names of language models are longer than those of layers."""

MOST = 9
"""The most slices that are drawn. The table of accuracy has tables of all."""

SLICES_NOTE = (
    "Accuracy of each language model against properties of a question. A mark is a value or a bin of several"
    " values, and grey dashes are chance, the accuracy of the best blind guess. Colours tell models apart and"
    " stand for no kind of model."
)

ANSWERS_NOTE = f"What each language model answers, the best model at the top. {KINDS_NOTE}"


class Asked(NamedTuple):
    """A language model with its answers to a question."""

    result: PretrainedResult
    name: str
    style: Style


Parts = Mapping[str, dict[str, Any]]
"""A slice of several models, by the ids of their results."""


def drawings(data: ReportData) -> list[Drawing]:
    """Return for each question a drawing of its slices and one of the kinds of answers, where it has them.

    A model has the same style in all drawings, as far as there are colours.
    """
    every = sorted({model_of(result) for result in data.pretrained})
    return [drawing for group in asked_groups(data.pretrained) for drawing in _of_group(group, every)]


def _of_group(group: AskedGroup, every: Sequence[tuple[str, ...]]) -> Iterator[Drawing]:
    """Return the drawings of a question; every: the models of all questions, in their order."""
    styles = styles_by_place([every.index(model_of(result)) for result in group.results])
    models = [Asked(*one) for one in zip(group.results, group.names, styles, strict=True)]
    slices = [(name, parts) for name, parts in group.slices.items() if len(_edges(parts)) > 1][:MOST]
    if slices:
        draw = partial(draw_slices, group=group, models=models, slices=dict(slices))
        yield _drawing(group, "slices", "accuracy by slice", draw, SLICES_NOTE)
    if any(shares_of(result["metrics"]) for result in group.results):
        draw = partial(draw_kinds, group=group, models=models)
        yield _drawing(group, "answers", "kinds of answers", draw, ANSWERS_NOTE)


def _drawing(group: AskedGroup, of: str, name: str, draw: "partial[bool]", note: str) -> Drawing:
    runs = {f"{result['probe']['precision']} on {result['probe']['device']}" for result in group.results}
    caption = (
        f"{note} Asked: {group.question}; {group.about} Run in {', '.join(sorted(runs))}."
        f" Code: {commits(group.results)}."
    )
    return Drawing(
        f"{group.slug}-{of}", draw, caption, fingerprint(group.results), name, table=group.slug, note=note
    )


def _edges(parts: Parts) -> list[int]:
    return bin_edges(list(parts.values()))


def draw_slices(
    sheet: Sheet, group: AskedGroup, models: Sequence[Asked], slices: Mapping[str, Parts]
) -> bool:
    """Draw a panel for each slice; where models are many, such panels for each part of them."""
    rows_of_part = -(-len(slices) // ACROSS)
    columns = -(-len(slices) // rows_of_part)
    parts = _divided(models)
    lacking = [
        _missing(model)
        for model in models
        if not all(model.result["id"] in found for found in slices.values())
    ]
    names = [*(model.name for model in models), *lacking]
    places = panel_grid(sheet, rows_of_part * len(parts), columns, names, PANEL_INCHES)
    for place, part in enumerate(parts):
        own = places[place * rows_of_part * columns : (place + 1) * rows_of_part * columns]
        for axes, (name, found) in zip(own, slices.items(), strict=False):
            draw_slice(axes, group, part, name, found)
        for empty in own[len(slices) :]:
            sheet.delaxes(empty)
    add_title(sheet, group.title)
    return True


def _divided(models: Sequence[Asked]) -> list[Sequence[Asked]]:
    """Return models in parts of about one length, each of which has room in a panel."""
    count = -(-len(models) // MAX_LINES_PER_PANEL)
    starts = [len(models) * place // count for place in range(count + 1)]
    return [models[start:end] for start, end in pairwise(starts)]


def draw_slice(axes: Axes, group: AskedGroup, models: Sequence[Asked], name: str, found: Parts) -> None:
    """Draw accuracy against a slice, in the same bins for all models; name in grey those that lack it."""
    edges = _edges(found)
    ends, missing = list[Named](), list[str]()
    points = {result_id: binned(part, edges) for result_id, part in found.items()}
    for model in models:
        own = points.get(model.result["id"], [])
        end = draw_line(axes, own, model.name, model.style, model.style.colour) if own else []
        ends += end
        if not end:
            missing.append(_missing(model))
    # a panel reaches as far as those of other models
    at = [x for of_model in points.values() for x, _ in of_model if math.isfinite(x)]
    axes.update_datalim([(min(at), 0), (max(at), 0)])
    axes.autoscale_view()
    first = group.results[0]
    set_slice_axis(axes, first["probe"]["task"]["name"], name, edges)
    set_metric_axis(axes, "accuracy", first["chance"])
    label_lines(axes, ends, missing)


def _missing(model: Asked) -> str:
    return f"{model.name}: {NOT_MEASURED}"


def draw_kinds(sheet: Sheet, group: AskedGroup, models: Sequence[Asked]) -> bool:
    """Draw a bar for each model; below, in grey, those whose answers are not told apart."""
    answers = []
    for model in models:
        shares = shares_of(model.result["metrics"])
        answers.append(
            Answers(
                model.name, model.style.colour, [shares] if shares else [], 0, "" if shares else NOT_MEASURED
            )
        )
    draw_answers(sheet, answers)
    add_title(sheet, group.title)
    return True


FIGURE = DataFigure(name="language-models", order=110, make=drawings, source="models")

"""Comparisons: stored results that may stand in one table, with a row for each model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from linbench.common.files import file_name
from linbench.common.hashing import canonical
from linbench.experiments.labels import (
    describe_mixture,
    distinguishing_labels,
    distinguishing_settings,
    unique_labels,
)
from linbench.experiments.presets import preset_of
from linbench.results.comparable import comparable_key
from linbench.results.open_ladders import highest_rungs
from linbench.results.record import (
    NO_VERDICT,
    UNLAWFUL,
    ModelSize,
    doublings_of,
    fingerprint,
    learning_rate_of,
    model_size_of,
    seed_of,
)
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracy, further_metrics
from linbench.results.sizes import count_of, matched_part, spread
from linbench.results.undertrained import judged

_ABSENT = object()


@dataclass(frozen=True)
class Row:
    """One model of a comparison: its results over seeds."""

    label: str
    results: tuple[CellResult, ...]
    tuning: tuple[CellResult, ...] = ()
    """Results of the runs that chose the learning rate."""
    rungs: tuple[CellResult, ...] = ()
    """Results of the rungs of its ladders, but for the last."""

    @property
    def accuracies(self) -> list[float]:
        """The test accuracy of each seed that measured something."""
        return [value for result in self.results if (value := accuracy(result)) is not None]

    @property
    def mean(self) -> float | None:
        """The mean accuracy over seeds."""
        return fmean(self.accuracies) if self.accuracies else None

    @property
    def spread(self) -> float | None:
        """The standard deviation of accuracy over seeds; None for fewer than two."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def metrics(self) -> dict[str, list[float]]:
        """The metrics other than accuracy and nll, each with a value for every seed that has it."""
        found: dict[str, list[float]] = {}
        for result in self.results:
            for name, value in further_metrics(result).items():
                if name != "nll":
                    found.setdefault(name, []).append(value)
        return found

    @property
    def eligible(self) -> bool:
        """True if no mark of its results keeps it from a verdict (`NO_VERDICT`)."""
        return not any(mark in NO_VERDICT for result in self.results for mark in result["marks"])

    @property
    def size(self) -> ModelSize:
        """The size of the model, from the first result whose model was built."""
        return model_size_of(next((result for result in self.results if result["model"]), self.results[0]))

    @property
    def state_floats(self) -> int:
        """The floats of state that a sequence carries; 0 if the model does not declare them."""
        return self.size["state_total"] or 0

    @property
    def width(self) -> int:
        """The width d_model of the model; 0 if it has none."""
        return _width(self.results[0]) or 0

    @property
    def marks(self) -> list[str]:
        """The marks and the statuses other than `ok`, each with the number of seeds that have it."""
        found = [
            mark
            for result in self.results
            for mark in [*result["marks"], *([] if result["status"] == "ok" else [result["status"]])]
        ]
        return [f"{mark} {found.count(mark)}/{len(self.results)}" for mark in dict.fromkeys(found)]


@dataclass(frozen=True)
class Comparison:
    """Results that may stand side by side.

    They have one task, form, protocol (but for the learning rate) and kind of device in common.
    """

    key: str
    task: str
    preset: str | None
    form: str
    device: str
    rows: tuple[Row, ...]
    display_preset: str | None = None
    """The preset shown to readers: the one that was run, or one that differs in form and learning rate
    only."""
    qualifier: str = ""
    """The settings that distinguish it from other comparisons of its task, where presets do not."""
    slug: str = ""
    """The name of its files."""

    @property
    def title(self) -> str:
        """The name shown to readers."""
        return " ".join(part for part in (self.task, self.display_preset, self.qualifier) if part)

    @property
    def until_learned(self) -> bool:
        """True if its models went on with larger budgets until they had learned."""
        return any("ladder" in result for result in self.results)

    @property
    def tests(self) -> list[str]:
        """Labels of several tests, by the settings in which they differ; empty for a single test."""
        tests = self.results[0]["cell"]["task"].get("test", [])
        return distinguishing_labels([test["settings"] for test in tests]) if len(tests) > 1 else []

    @property
    def size_mismatch(self) -> dict[str, float]:
        """The largest relative size difference between models of one width: largest over smallest, less 1.

        States are compared among models without a cache, by the `matched_part`.
        """
        built = [row.results[0] for row in self.rows if row.results[0]["model"]]
        by_width = [
            [result["model"] for result in built if _width(result) == width]
            for width in {_width(result) for result in built}
        ]
        states = [
            [state for model in models if (state := model["state"]) and not state["cache"]]
            for models in by_width
        ]
        part = matched_part(states)
        counts = {
            "parameters": [[model["parameters"] for model in models] for models in by_width],
            part: [[count_of(state, part) for state in group] for group in states],
        }
        return {
            name: max(map(spread, groups))
            for name, groups in counts.items()
            if any(len(group) > 1 and min(group) > 0 for group in groups)
        }

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings of backbone and mixers that are the same in every layer of every model."""
        models = [result["cell"]["model"] for result in self.results]
        layers = [
            {**model["backbone"]["settings"], **layer["settings"]}
            for model in models
            for layer in model["layers"]
        ]
        return {
            name: value
            for name, value in layers[0].items()
            if all(layer.get(name, _ABSENT) == value for layer in layers)
        }

    @property
    def results(self) -> list[CellResult]:
        """The results of all rows."""
        return [result for row in self.rows for result in row.results]

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all results, with those that chose learning rates."""
        return fingerprint(one for row in self.rows for one in (*row.results, *row.tuning, *row.rungs))


def comparisons(results: Iterable[CellResult], order: Sequence[str] = ()) -> list[Comparison]:
    """Group results into comparisons.

    Results that chose a learning rate make no row; they go with the row of their model. Of a ladder the last
    rung counts, or the highest so far, which is marked. Models of one label get labels with the settings in
    which they differ. Controlled and native forms never meet.

    Args:
        order: labels of the rows that stand first; all others follow by label.
    """
    groups: dict[str, list[CellResult]] = {}
    tuning: dict[str, list[CellResult]] = {}
    rungs: dict[str, list[CellResult]] = {}
    every = judged(results)
    for result in highest_rungs(every):
        groups.setdefault(comparable_key(result, ladder=True), []).append(result)
    for result in every:
        if result["purpose"] == "report":
            groups.setdefault(comparable_key(result, ladder="ladder" in result), []).append(result)
        elif result["purpose"] == "tuning":
            for ladder in (False, True):
                tuning.setdefault(comparable_key(result, ladder=ladder), []).append(result)
        else:
            rungs.setdefault(comparable_key(result, ladder=True), []).append(result)
    found = _with_titles(
        [
            _comparison(key, _rows(members, tuning.get(key, []), rungs.get(key, [])), order)
            for key, members in groups.items()
        ]
    )
    return sorted(found, key=lambda c: (c.task, _with_numbers(c.title), c.form, c.key))


def _with_numbers(title: str) -> list[str | int]:
    """Return a sort key in which 4 comes before 12."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", title))]


def _with_titles(found: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with titles and file names that distinguish them.

    If each comparison of a task and form has a preset of its own, presets do. Otherwise settings do, the same
    ones in all comparisons of a task.
    """
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in found:
        groups.setdefault((c.task, c.form), []).append(c)
    ambiguous = {
        key: [_settings(c) for c in own] for key, own in groups.items() if not _each_another_preset(own)
    }
    named = []
    for key, own in groups.items():
        presets = [c.preset for c in own]
        settings = ambiguous.get(key, [{}] * len(own))
        names = _distinguishing_names(key[0], settings, ambiguous) if key in ambiguous else []
        for c, values in zip(own, settings, strict=True):
            qualifier = " / ".join(f"{name} {values[name]}" for name in names if name in values)
            named.append(replace(c, qualifier=qualifier, slug=_slug(c, alone=presets.count(c.preset) == 1)))
    return named


def _distinguishing_names(
    task: str,
    settings: Sequence[dict[str, Any]],
    ambiguous: dict[tuple[str, str], list[dict[str, Any]]],
) -> list[str]:
    """Return the names of the settings that distinguish all ambiguous comparisons of a task."""
    of_task = [each for (other, _), each in ambiguous.items() if other == task]
    names = distinguishing_settings(of_task, last=_LAST)
    if len({each["source"] for each in settings}) > 1:
        # whatever else differs, a reader must know that the code did
        names = [*(name for name in names if name != "source"), "source"]
    return names


def _slug(c: Comparison, *, alone: bool) -> str:
    """Return the file name of a comparison. alone: whether no other of its task and form has its preset."""
    parts = [c.preset or "", "" if alone and c.preset else c.key[:8]]
    return file_name("-".join([c.task, *filter(None, parts), c.form]))


def _each_another_preset(alike: Sequence[Comparison]) -> bool:
    presets = [c.display_preset for c in alike]
    return None not in presets and len(set(presets)) == len(presets)


def _settings(c: Comparison) -> dict[str, Any]:
    """Return all settings in which comparisons of one task can differ, the most telling first."""
    cell = c.results[0]["cell"]
    task, protocol = cell["task"], cell["protocol"]
    train = [{**part["settings"], "examples": part["examples"]} for part in task.get("train", [])]
    test = [dict(part["settings"]) for part in task.get("test", [])]
    mixed = describe_mixture(task["settings"], train, test, shown=2)
    of_protocol = {f"protocol.{name}": value for name, value in protocol["settings"].items() if name != "lr"}
    of_models = {f"model.{name}": value for name, value in c.shared_settings.items()}
    source = (task["source"] or "")[:8]
    values = (task["version"], task.get("draws", 0), protocol["version"], source, c.key[:8])
    versions = dict(zip(_LAST, values, strict=True))
    return {**task["settings"], **mixed, **of_protocol, "device": c.device, **of_models, **versions}


_LAST = ("version", "version of draws", "protocol.version", "source", "comparison")
"""The settings shown last to distinguish comparisons: versions, the digest of a user's task, and the start of
the key."""


def _comparison(key: str, rows: list[Row], order: Sequence[str]) -> Comparison:
    rank = {label: i for i, label in enumerate(order)}
    rows.sort(key=lambda row: (rank.get(row.results[0]["label"], len(rank)), _with_numbers(row.label)))
    rows = [_with_broken_laws(row) for row in rows]
    members = [result for row in rows for result in row.results]
    cell, presets = members[0]["cell"], {member["preset"] for member in members}
    preset = presets.pop() if len(presets) == 1 else None
    display_preset = preset or preset_of([member["cell"] for member in members])
    return Comparison(
        key, cell["task"]["name"], preset, cell["model"]["form"], cell["device"], tuple(rows), display_preset
    )


def _rows(
    members: Iterable[CellResult], tuning: Iterable[CellResult], rungs: Iterable[CellResult]
) -> list[Row]:
    """Return a row for each model and learning rate, with the results that chose that rate, and rungs."""
    by_model: dict[str, list[CellResult]] = {}
    for result in members:
        by_model.setdefault(_model_and_rate(result), []).append(result)
    tried: dict[str, list[CellResult]] = {}
    for result in tuning:
        tried.setdefault(canonical(result["cell"]["model"]), []).append(result)
    climbed: dict[str, list[CellResult]] = {}
    for result in rungs:
        climbed.setdefault(_model_and_rate(result), []).append(result)
    groups = [sorted(group, key=seed_of) for group in by_model.values()]
    labels = unique_labels([group[0]["label"] for group in groups], [_flat(group[0]) for group in groups])
    rows = []
    for label, group in zip(labels, groups, strict=True):
        chose = tried.get(canonical(group[0]["cell"]["model"]), [])
        chose.sort(key=lambda one: (learning_rate_of(one), seed_of(one)))
        below = climbed.get(_model_and_rate(group[0]), [])
        below.sort(key=lambda one: (seed_of(one), doublings_of(one)))
        rows.append(Row(label, tuple(group), tuple(chose), tuple(below)))
    return rows


def _model_and_rate(result: CellResult) -> str:
    cell = result["cell"]
    # not `learning_rate_of`: in `matching` a searched rate stands as a word
    return canonical([cell["model"], cell["protocol"]["settings"]["lr"]])


def broken_laws(results: Iterable[Result]) -> str:
    """Return the suffix of a model's name that names the laws its layers break, such as ` (non-causal)`.

    It is empty if they break none.
    """
    marks = {mark for result in results for mark in result["marks"]}
    found = [mark for mark in UNLAWFUL if mark in marks]
    return f" ({', '.join(found)})" if found else ""


def law_warning(rows: Iterable[Row]) -> str:
    """Return a sentence that names the models whose layers break a law, or may; empty if there are none."""
    found = dict.fromkeys(row.label for row in rows if broken_laws(row.results))
    return (
        f"In no verdict, as a law that layers must keep is broken or could not be probed: {', '.join(found)}."
        if found
        else ""
    )


def _with_broken_laws(row: Row) -> Row:
    """Return a row with the laws it breaks in its label, and in those of its results, which figures show."""
    words = broken_laws(row.results)
    if not words:
        return row
    label = f"{row.label.removesuffix(words)}{words}"
    results: list[CellResult] = [
        {**result, "label": f"{result['label'].removesuffix(words)}{words}"} for result in row.results
    ]
    return replace(row, label=label, results=tuple(results))


def _width(result: CellResult) -> int | None:
    return result["cell"]["model"]["backbone"]["settings"].get("d_model")


def _flat(result: CellResult) -> dict[str, Any]:
    """Return the settings of a model by name; of further layers those that differ from the first."""
    cell = result["cell"]
    backbone = cell["model"]["backbone"]["settings"]
    flat = {"d_model": backbone.get("d_model"), **backbone}  # what a reader would name first
    for i, layer in enumerate(cell["model"]["layers"]):
        own = {"version": layer["version"], "source": (layer["source"] or "")[:8], **layer["settings"]}
        flat |= {
            name if i == 0 else f"layer {i} {name}": value
            for name, value in own.items()
            if i == 0 or value != flat.get(name)
        }
    return {**flat, "lr": cell["protocol"]["settings"]["lr"]}

"""Stored results as rows and as comparisons: which of them may stand in one table."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from linbench.common.files import file_name
from linbench.common.hashing import canonical, digest
from linbench.experiments.labels import distinguishing_labels, distinguishing_settings, mixture, unique_labels
from linbench.experiments.presets import preset_of
from linbench.models.blocks.heads import CONTROLLED
from linbench.results.record import NO_VERDICT, UNLAWFUL, ModelSize, fingerprint, rate_of, seed_of, size_of
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult, Model
from linbench.results.scores import accuracy

_ABSENT = object()


@dataclass(frozen=True)
class Row:
    """One model of a comparison: its results over seeds."""

    label: str
    results: tuple[CellResult, ...]
    tuning: tuple[CellResult, ...] = ()
    """Those that chose its learning rate."""

    @property
    def accuracies(self) -> list[float]:
        """One per seed that measured something."""
        return [value for result in self.results if (value := accuracy(result)) is not None]

    @property
    def mean(self) -> float | None:
        """Mean accuracy over seeds."""
        return fmean(self.accuracies) if self.accuracies else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def metrics(self) -> dict[str, list[float]]:
        """Metrics beside accuracy and nll: one value per seed that has it."""
        found: dict[str, list[float]] = {}
        for result in self.results:
            for name, value in result["metrics"].items() if result["status"] == "ok" else ():
                if name not in {"accuracy", "nll"}:
                    found.setdefault(name, []).append(value)
        return found

    @property
    def in_verdicts(self) -> bool:
        """Whether it was neither undertrained nor its learning rate in doubt, and its layers are known to
        keep the laws."""
        return not any(mark in NO_VERDICT for result in self.results for mark in result["marks"])

    @property
    def size(self) -> ModelSize:
        """The size of the model, from the first result whose model was built."""
        return size_of(next((result for result in self.results if result["model"]), self.results[0]))

    @property
    def state_floats(self) -> int:
        """That a sequence carries; 0: it does not say."""
        return self.size["state_total"] or 0

    @property
    def width(self) -> int:
        """Its d_model; 0: it has none."""
        return int(_width(self.results[0]) or 0)

    @property
    def marks(self) -> list[str]:
        """Marks and statuses other than `ok`, with how many seeds have them."""
        found = [
            mark
            for result in self.results
            for mark in [*result["marks"], *([] if result["status"] == "ok" else [result["status"]])]
        ]
        return [f"{mark} {found.count(mark)}/{len(self.results)}" for mark in dict.fromkeys(found)]


@dataclass(frozen=True)
class Comparison:
    """Results that may stand side by side: one task, one form, one protocol (but for the learning rate), one
    kind of device."""

    key: str
    task: str
    preset: str | None
    form: str
    device: str
    rows: tuple[Row, ...]
    called: str | None = None
    """The preset that readers know it by: its own, or the one that it is but for form and learning rate."""
    told: str = ""
    """Where presets do not tell those of its task and form apart that stand beside it: the settings that do,
    of all of its task."""
    slug: str = ""
    """A name for files."""

    @property
    def title(self) -> str:
        """A name for readers."""
        return " ".join(part for part in (self.task, self.called, self.told) if part)

    @property
    def tests(self) -> list[str]:
        """Several tests in words, by what is not the same in all of them; empty for a single one."""
        tests = self.results[0]["cell"]["task"].get("test", [])
        return distinguishing_labels([test["settings"] for test in tests]) if len(tests) > 1 else []

    @property
    def mismatch(self) -> dict[str, float]:
        """How far apart models of one width are in parameters, and in state floats among those whose state
        does not grow: largest over smallest, less 1."""
        found: dict[str, float] = {}
        firsts = [row.results[0] for row in self.rows if row.results[0]["model"]]
        for width in {_width(result) for result in firsts}:
            sizes = [result["model"] for result in firsts if _width(result) == width]
            counts = {
                "parameters": [size["parameters"] for size in sizes],
                "state floats": [
                    size["state"]["total"] for size in sizes if size["state"] and not size["state"]["cache"]
                ],
            }
            for name, values in counts.items():
                if len(values) > 1 and min(values) > 0:
                    found[name] = max(found.get(name, 0.0), max(values) / min(values) - 1)
        return found

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
        """All of them."""
        return [result for row in self.rows for result in row.results]

    @cached_property
    def fingerprint(self) -> str:
        """Of all that was measured, with what chose learning rates."""
        return fingerprint(one for row in self.rows for one in (*row.results, *row.tuning))


def comparisons(results: Iterable[CellResult], order: Sequence[str] = ()) -> list[Comparison]:
    """Results grouped into what may be compared; those that chose a learning rate are no rows, but go with
    the row of their model. Controlled and native forms never meet.

    Rows stand in the `order` of labels given, then by label. Models of one label that differ in settings are
    told apart by them.
    """
    groups: dict[str, list[CellResult]] = {}
    tuning: dict[str, list[CellResult]] = {}
    for result in results:
        (groups if result["purpose"] == "report" else tuning).setdefault(_comparable(result), []).append(
            result
        )
    found = _told_apart(
        [_comparison(key, members, tuning.get(key, []), order) for key, members in groups.items()]
    )
    return sorted(found, key=lambda c: (c.task, _with_numbers(c.title), c.form, c.key))


def _with_numbers(title: str) -> list[str | int]:
    """By which 4 comes before 12."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", title))]


def _told_apart(found: Sequence[Comparison]) -> list[Comparison]:
    """With the names that they have beside each other: by settings, unless those of a task and form are each
    another preset; all of a task by the same."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in found:
        groups.setdefault((c.task, c.form), []).append(c)
    alike = {key: [_settings(c) for c in own] for key, own in groups.items() if not _each_another_preset(own)}
    named = []
    for (task, form), own in groups.items():
        names = (
            distinguishing_settings(
                [every for (other, _), every in alike.items() if other == task], last=_LAST
            )
            if (task, form) in alike
            else []
        )
        if len({settings["source"] for settings in alike.get((task, form), [])}) > 1:
            # whatever else differs, a reader must know that the code did
            names = [*(name for name in names if name != "source"), "source"]
        presets = [c.preset for c in own]
        for c, settings in zip(own, alike.get((task, form), [{}] * len(own)), strict=True):
            alone = c.preset if presets.count(c.preset) == 1 else None
            slug = file_name(
                "-".join(
                    [task, *([alone] if alone else [part for part in (c.preset, c.key[:8]) if part]), form]
                )
            )
            told = " / ".join(f"{name} {settings[name]}" for name in names if name in settings)
            named.append(replace(c, told=told, slug=slug))
    return named


def _each_another_preset(alike: Sequence[Comparison]) -> bool:
    called = [c.called for c in alike]
    return None not in called and len(set(called)) == len(called)


def _settings(c: Comparison) -> dict[str, Any]:
    """All that comparisons of one task differ by, what a reader would name first before the rest."""
    cell = c.results[0]["cell"]
    task, protocol = cell["task"], cell["protocol"]
    train = [{**part["settings"], "examples": part["examples"]} for part in task.get("train", [])]
    test = [dict(part["settings"]) for part in task.get("test", [])]
    mixed = mixture(task["settings"], train, test)
    of_protocol = {f"protocol.{name}": value for name, value in protocol["settings"].items() if name != "lr"}
    of_models = {f"model.{name}": value for name, value in c.shared_settings.items()}
    versions = dict(
        zip(
            _LAST,
            (
                task["version"],
                task.get("draws", 0),
                protocol["version"],
                (task["source"] or "")[:8],
                c.key[:8],
            ),
            strict=True,
        )
    )
    return {**task["settings"], **mixed, **of_protocol, "device": c.device, **of_models, **versions}


_LAST = ("version", "version of draws", "protocol.version", "source", "comparison")
"""What tells comparisons apart that are alike to a reader in all else: versions, the file of a user's task,
and in the end how their key begins."""


def _comparable(result: CellResult) -> str:
    cell = result["cell"]
    protocol = {name: value for name, value in cell["protocol"]["settings"].items() if name != "lr"}
    kept: dict[str, Any] = {
        "task": cell["task"],
        "form": cell["model"]["form"],
        "protocol": [cell["protocol"]["version"], protocol],
    }
    if kept["form"] == "controlled":
        kept["surroundings"] = _surroundings(cell["model"])
    return digest({**kept, "device": cell["device"], "schema": cell["schema"]})


def _surroundings(model: Model) -> list[str]:
    """What the controlled form promises to be the same for all, as this model has it; a layer that lacks a
    setting cannot differ in it."""
    backbone = {
        name: value
        for name, value in model["backbone"]["settings"].items()
        if name not in {"d_model", "layers", "channel_width"}
    }
    layers = (
        {name: layer["settings"].get(name, own) for name, own in CONTROLLED.items()}
        for layer in model["layers"]
    )
    return sorted({canonical({**backbone, **layer}) for layer in layers})


def _comparison(
    key: str, members: Sequence[CellResult], tuning: Sequence[CellResult], order: Sequence[str]
) -> Comparison:
    by_model: dict[str, list[CellResult]] = {}
    for result in members:
        by_model.setdefault(
            canonical([result["cell"]["model"], result["cell"]["protocol"]["settings"]["lr"]]), []
        ).append(result)
    groups = [sorted(group, key=seed_of) for group in by_model.values()]
    labels = unique_labels([group[0]["label"] for group in groups], [_flat(group[0]) for group in groups])
    tried: dict[str, list[CellResult]] = {}
    for result in tuning:
        tried.setdefault(canonical(result["cell"]["model"]), []).append(result)
    rows = [
        Row(
            label,
            tuple(group),
            tuple(
                sorted(
                    tried.get(canonical(group[0]["cell"]["model"]), []),
                    key=lambda one: (rate_of(one), seed_of(one)),
                )
            ),
        )
        for label, group in zip(labels, groups, strict=True)
    ]
    rank = {label: i for i, label in enumerate(order)}
    rows.sort(key=lambda row: (rank.get(row.results[0]["label"], len(rank)), _with_numbers(row.label)))
    rows = [_broken_told(row) for row in rows]
    cell, presets = members[0]["cell"], {member["preset"] for member in members}
    preset = presets.pop() if len(presets) == 1 else None
    called = preset or preset_of([member["cell"] for member in members])
    return Comparison(
        key, cell["task"]["name"], preset, cell["model"]["form"], cell["device"], tuple(rows), called
    )


def broken(results: Iterable[Result]) -> str:
    """Return what stands behind a model's name wherever it is shown: ` (non-causal)` where layers of its
    break that law; empty where they break none."""
    marks = {mark for result in results for mark in result["marks"]}
    found = [mark for mark in UNLAWFUL if mark in marks]
    return f" ({', '.join(found)})" if found else ""


def laws_said(rows: Iterable[Row]) -> str:
    """Say which of these models break a law that every layer must keep, or may; empty where none does."""
    found = dict.fromkeys(row.label for row in rows if broken(row.results))
    return (
        f"In no verdict, as a law that layers must keep is broken or could not be probed: {', '.join(found)}."
        if found
        else ""
    )


def _broken_told(row: Row) -> Row:
    """Return the row with that behind its name, in its results too, as figures name models by these."""
    words = broken(row.results)
    if not words:
        return row
    label = f"{row.label.removesuffix(words)}{words}"
    results: list[CellResult] = [
        {**result, "label": f"{result['label'].removesuffix(words)}{words}"} for result in row.results
    ]
    return replace(row, label=label, results=tuple(results))


def _width(result: CellResult) -> Any:
    return result["cell"]["model"]["backbone"]["settings"].get("d_model")


def _flat(result: CellResult) -> dict[str, Any]:
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

"""The number that a measure reads from stored results: one for every seed."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import inf
from typing import Any

from linbench.claims.interval import Interval, mean, monotone, point
from linbench.claims.schema import MeasureSettings
from linbench.claims.seed_evidence import ExcludedSeed, SeedEvidence
from linbench.engine.former import describe_former_rules
from linbench.experiments.cell import Cell
from linbench.experiments.labels import all_settings
from linbench.results.record import NO_VERDICT, UNDERTRAINED, UNLAWFUL
from linbench.results.schema.cells import CellResult
from linbench.results.scores import LEARNED, above_chance, accuracy, steps_to_reach
from linbench.results.slices import slices

STEPS = "steps to 0.9"
"""The training steps until validation accuracy is that high."""

SHARES = ("accuracy", "scaled")
"""Measures whose best possible value is 1."""


def seed_evidence(
    settings: MeasureSettings, cells: Sequence[Cell], results: Mapping[str, CellResult]
) -> SeedEvidence:
    """Read the value of a measure for each seed.

    Args:
        cells: all cells of the measure.
        results: those that are stored, by the ids of their cells.
    """
    values: dict[int, float] = {}
    excluded: dict[int, ExcludedSeed] = {}
    missing = 0
    by_seed: dict[int, list[Cell]] = {}
    for cell in cells:
        by_seed.setdefault(cell.seed, []).append(cell)
    for seed, own in by_seed.items():
        present = [results[cell.id] for cell in own if cell.id in results]
        if len(present) < len(own):
            missing += 1
            continue
        why = _exclusion(present, settings)
        if why and (why in UNLAWFUL or why not in NO_VERDICT):
            excluded[seed] = ExcludedSeed(why, None)
            continue
        bounds = _bounds(settings, own, present)
        if why:
            limited = bounds if settings.of in SHARES else Interval(bounds.low, inf)
            excluded[seed] = ExcludedSeed(why, limited)
        else:
            values[seed] = bounds.low
    used = [results[cell.id] for cell in cells if cell.id in results]
    return SeedEvidence(values, missing, excluded, qualifiers=tuple(describe_former_rules(used)))


def _exclusion(results: Sequence[CellResult], settings: MeasureSettings) -> str:
    """Return the gravest reason why a seed does not count: a broken law first, "still improving" last."""
    reasons = [reason for result in results for reason in _reasons(result, settings)]
    return min(reasons, key=lambda why: (why == UNDERTRAINED) - (why in UNLAWFUL), default="")


def _reasons(result: CellResult, settings: MeasureSettings) -> list[str]:
    if result["status"] not in ("ok", "diverged"):
        return [str(result["status"])]
    at_chance = settings.of in (*SHARES, STEPS) or settings.along  # what a diverged run counts as
    if result["status"] == "diverged" and not at_chance:
        return ["diverged"]
    excluding = UNLAWFUL if settings.marked else NO_VERDICT
    return [mark for mark in result["marks"] if mark in excluding]


def _bounds(settings: MeasureSettings, cells: Sequence[Cell], results: Sequence[CellResult]) -> Interval:
    if settings.along:
        return _largest_reached(settings, cells, results)
    return monotone(mean)(*(_value(settings, result, settings.at) for result in results))


def _largest_reached(
    settings: MeasureSettings, cells: Sequence[Cell], results: Sequence[CellResult]
) -> Interval:
    """Return the largest value of a slice or setting up to which all scores are high enough; 0 if none is.

    Scores beyond the first that is too low do not matter.
    """
    if "." in settings.along:
        curve = [
            (float(all_settings(cell)[settings.along]), _value(settings, result, settings.at))
            for cell, result in zip(cells, results, strict=True)
        ]
    else:
        # a run that diverged has no slices
        slice_ = _part(settings, results[0])["slices"].get(settings.along, {"at": []})
        curve = [(float(at), _value(settings, results[0], {settings.along: at})) for at in slice_["at"]]
    curve.sort()
    places = [0.0, *(place for place, _ in curve)]
    enough = settings.reaching or 0.0

    def largest(*scores: float) -> float:
        reached = list(takewhile(lambda score: score >= enough, scores))
        return places[len(reached)]

    return monotone(largest)(*(score for _, score in curve))


def _value(settings: MeasureSettings, result: CellResult, at: Mapping[str, int | str]) -> Interval:
    """Return the value of a run; if it was still improving, with the most that a share can become."""
    value = _read(settings, result, at)
    return Interval(value, max(1.0, value)) if UNDERTRAINED in result["marks"] else point(value)


def _read(settings: MeasureSettings, result: CellResult, at: Mapping[str, int | str]) -> float:
    if settings.of == STEPS:
        return steps_to_reach(result, LEARNED)
    part = _part(settings, result)
    metric = "accuracy" if settings.of == "scaled" else settings.of
    if result["status"] == "diverged":
        value = float(part["chance"])
    elif at:
        value = _slice_mean(part["slices"], at, metric)
    else:
        value = float(part["metrics"][metric])
    return above_chance(value, part["chance"]) if settings.of == "scaled" else value


def _part(settings: MeasureSettings, result: CellResult) -> Mapping[str, Any]:
    """Return the metrics, slices and chance of the whole result, or of one of its tests."""
    if not settings.test or "tests" not in result:
        return {
            "metrics": {**result["metrics"], "accuracy": accuracy(result)},
            "slices": slices(result),
            "chance": result["chance"],
        }
    (test,) = (test for test in result["tests"] if settings.test.items() <= test["settings"].items())
    return {"metrics": test["metrics"], "slices": test["slices"], "chance": test["chance"]}


def _slice_mean(all_slices: Mapping[str, Any], at: Mapping[str, int | str], metric: str) -> float:
    """Return the mean over the places where a slice has a value, or a value in a range."""
    ((name, wanted),) = at.items()
    low, _, high = str(wanted).partition("-")
    part = all_slices[name]
    places = [i for i, value in enumerate(part["at"]) if int(low) <= value <= int(high or low)]
    total = sum(part[metric]["sum"][i] for i in places)
    weight = sum(part[metric]["weight"][i] for i in places)
    return float(total / weight)

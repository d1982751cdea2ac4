"""What a measure came to: a number for every seed that counts, and why others do not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from statistics import fmean, stdev
from typing import Any, NamedTuple

from linbench.claims.interval import Span, best, ends, exactly, mean
from linbench.claims.schema import LEAST_SEEDS, Measure
from linbench.common.text import counted
from linbench.engine.former import says
from linbench.experiments.cell import Cell
from linbench.experiments.labels import all_settings
from linbench.results.record import NO_VERDICT, UNDERTRAINED, UNLAWFUL, Result
from linbench.results.scores import LEARNED, above_chance, accuracy, steps_to
from linbench.results.slices import slices

STEPS = "steps to 0.9"
"""Of training, until validation accuracy is that high."""


SHARES = ("accuracy", "scaled")
"""What lies between 0 and 1, or chance and 1."""


class Aside(NamedTuple):
    """A seed that decides nothing."""

    why: str
    between: Span | None
    """What it came to, where anything was measured, and what more training could make of that at most, which
    may be infinitely much."""

    @property
    def value(self) -> float | None:
        """What it came to, where anything was measured."""
        return None if self.between is None else self.between.low


@dataclass(frozen=True)
class Figure:
    """Of one kind of device, or of none where nothing is trained."""

    values: Mapping[int, float]
    """By seeds."""
    missing: int = 0
    """Seeds without all their results."""
    aside: Mapping[int, Aside] = field(default_factory=dict)
    """Seeds whose results decide nothing."""
    best: bool = False
    qualifiers: tuple[str, ...] = ()
    """By which rules of former days the learning rates of its runs were chosen, in words; none: as the search
    asks today."""

    whole = "all seeds"
    """By what an answer is found before it is doubted."""

    @property
    def seen(self) -> bool:
        """Whether anything was found."""
        return bool(self.values or self.aside)

    @property
    def value(self) -> float:
        """The mean over seeds, or the best of them."""
        return max(self.values.values()) if self.best else fmean(self.values.values())

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; 0 of a single one, of the best of them, and where any was never
        reached."""
        values = list(self.values.values())
        return stdev(values) if len(values) > 1 and inf not in values and not self.best else 0.0

    @property
    def trouble(self) -> str:
        """Why it decides nothing; empty where it does."""
        if self.missing:
            return f"{self.missing} of {self.missing + len(self.values) + len(self.aside)} seeds missing"
        if len(self.values) >= LEAST_SEEDS:
            return ""
        reasons = [aside.why for aside in self.aside.values()]
        told = ", ".join(f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons))
        return f"{len(self.values)} of {len(self.values) + len(reasons)} seeds count ({told})"

    @property
    def short(self) -> bool:
        """Whether more training may be all that it lacks."""
        return (
            bool(self.trouble)
            and not self.missing
            and all(aside.why == UNDERTRAINED for aside in self.aside.values())
        )

    @property
    def bounded(self) -> bool:
        """Whether all that it lacks is that runs were still getting better, and it is known how good they can
        get."""
        return (
            self.short
            and bool(self.aside)
            and all(aside.between is not None and aside.between.high < inf for aside in self.aside.values())
        )

    @property
    def span(self) -> Span:
        """Between what it lies: runs that were still getting better stay as they are, or come to the most
        that there is."""
        if not self.bounded:
            return exactly(self.value)
        return ends(best if self.best else mean)(
            *map(exactly, self.values.values()),
            *(aside.between for aside in self.aside.values() if aside.between is not None),
        )

    def others(self, name: str) -> Iterator[tuple[str, "Figure"]]:
        """What it would be without any one seed, in words; nothing of the best of them."""
        aside = self.aside if self.bounded else {}
        for seed in () if self.best else (*self.values, *aside):
            values = {own: value for own, value in self.values.items() if own != seed}
            yield (
                f"without seed {seed} of {name}",
                Figure(values, aside={own: each for own, each in aside.items() if own != seed}),
            )

    @property
    def out_of(self) -> str:
        """How many seeds count and, where they differ, what each came to; then why others do not."""
        told = (
            ", ".join(map(in_words, self.values.values()))
            if len(set(self.values.values())) > 1 or self.aside
            else ""
        )
        counting = counted(len(self.values), "seed") + (f": {told}" if told else "")
        others = [
            f"{aside.why}{'' if aside.value is None else f' at {in_words(aside.value)}'}"
            for aside in self.aside.values()
        ]
        return "; ".join([counting, *others, *([f"{self.missing} missing"] if self.missing else [])])

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "value": _number(self.value if self.values else None),
            "spread": self.spread if self.values else None,
            "seeds": {str(seed): _number(value) for seed, value in self.values.items()},
            "aside": {
                str(seed): {"why": aside.why, "value": _number(aside.value)}
                for seed, aside in self.aside.items()
            },
            "missing": self.missing,
            "between": list(self.span) if self.bounded else None,
        }

    def __str__(self) -> str:
        if self.bounded:
            return " to ".join(map(in_words, dict.fromkeys(self.span)))
        if not self.values:
            return "–"
        spread = (
            f" ± {self.spread:.3f}"
            if len(self.values) > 1
            and inf not in self.values.values()
            and not self.best
            and not _rounding(self.value)
            else ""
        )
        return f"{in_words(self.value)}{spread if self.value < 1000 else ''}"


def in_words(value: float) -> str:
    """A figure as it is shown."""
    return (
        "never"
        if value == inf
        else f"{value:,.0f}"
        if abs(value) >= 1000
        else "< 1e-5"
        if _rounding(value)
        else f"{value:.3f}"
    )


def _rounding(value: float) -> bool:
    """Whether it is so small that its digits are the machine's own."""
    return 0 < abs(value) < 1e-5


def _number(value: float | None) -> float | str | None:
    """JSON has no infinity."""
    return "never" if value == inf else value


def figure(measure: Measure, cells: Sequence[Cell], found: Mapping[str, Result]) -> Figure:
    """Of the cells of a measure, with the results that are there, by the ids of cells."""
    values: dict[int, float] = {}
    aside: dict[int, Aside] = {}
    missing = 0
    by_seed: dict[int, list[Cell]] = {}
    for cell in cells:
        by_seed.setdefault(cell.seed, []).append(cell)
    for seed, these in by_seed.items():
        results = [found[cell.id] for cell in these if cell.id in found]
        if len(results) < len(these):
            missing += 1
            continue
        troubles = [word for result in results for word in _troubles(result, measure)]
        # more training is no answer to others, and nothing to a law that is broken
        trouble = min(troubles, key=lambda word: (word == UNDERTRAINED) - (word in UNLAWFUL), default="")
        if trouble and (trouble in UNLAWFUL or trouble not in NO_VERDICT):
            aside[seed] = Aside(trouble, None)
            continue
        between = (
            _along(measure, these, results)
            if measure.along
            else ends(mean)(*(_value(measure, result, measure.at) for result in results))
        )
        if trouble:
            aside[seed] = Aside(trouble, between if measure.of in SHARES else Span(between.low, inf))
        else:
            values[seed] = between.low
    qualifiers = tuple(says([found[cell.id] for cell in cells if cell.id in found]))
    return Figure(values, missing, aside, best=measure.over == "best", qualifiers=qualifiers)


def _troubles(result: Result, measure: Measure) -> list[str]:
    if result["status"] not in ("ok", "diverged"):
        return [str(result["status"])]
    if result["status"] == "diverged" and measure.of not in (*SHARES, STEPS) and not measure.along:
        return ["diverged"]
    return [mark for mark in result["marks"] if mark in (UNLAWFUL if measure.marked else NO_VERDICT)]


def _along(measure: Measure, cells: Sequence[Cell], results: Sequence[Result]) -> Span:
    """The largest value of a slice or a setting up to which all are as high; 0 where the first is not. What
    lies beyond one that is not changes nothing."""
    if "." in measure.along:
        curve = [
            (float(all_settings(cell)[measure.along]), _value(measure, result, measure.at))
            for cell, result in zip(cells, results, strict=True)
        ]
    else:
        # of a run that diverged none
        told = _part(measure, results[0])["slices"].get(measure.along, {"at": []})
        curve = [(float(at), _value(measure, results[0], {measure.along: at})) for at in told["at"]]
    curve.sort()
    places = [0.0, *(at for at, _ in curve)]
    enough = measure.reaching or 0.0
    return ends(lambda *values: places[len(list(takewhile(lambda value: value >= enough, values)))])(
        *(value for _, value in curve)
    )


def _value(measure: Measure, result: Result, at: Mapping[str, int | str]) -> Span:
    """What a run came to and, where it was still getting better, the most that a share could come to."""
    value = _reached(measure, result, at)
    return Span(value, max(1.0, value)) if UNDERTRAINED in result["marks"] else exactly(value)


def _reached(measure: Measure, result: Result, at: Mapping[str, int | str]) -> float:
    if measure.of == STEPS:
        return steps_to(result, LEARNED)
    part = _part(measure, result)
    metric = "accuracy" if measure.of == "scaled" else measure.of
    if result["status"] == "diverged":
        found = float(part["chance"])
    elif at:
        found = _of_slice(part["slices"], at, metric)
    else:
        found = float(part["metrics"][metric])
    return above_chance(found, part["chance"]) if measure.of == "scaled" else found


def _part(measure: Measure, result: Result) -> Mapping[str, Any]:
    """The whole of a result, or one of its tests."""
    if not measure.test or "tests" not in result:
        return {
            "metrics": {**result["metrics"], "accuracy": accuracy(result)},
            "slices": slices(result),
            "chance": result["chance"],
        }
    (test,) = (test for test in result["tests"] if measure.test.items() <= test["settings"].items())
    return {"metrics": test["metrics"], "slices": test["slices"], "chance": test["chance"]}


def _of_slice(found: Mapping[str, Any], at: Mapping[str, int | str], metric: str) -> float:
    """Of the places whose slice has the value, or one in the range."""
    ((name, wanted),) = at.items()
    low, _, high = str(wanted).partition("-")
    part = found[name]
    places = [i for i, value in enumerate(part["at"]) if int(low) <= value <= int(high or low)]
    return float(sum(part[metric]["sum"][i] for i in places) / sum(part[metric]["weight"][i] for i in places))

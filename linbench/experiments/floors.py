"""Floors of tasks: how much shallow baselines score, as measured once for each preset.

`floors.json` keeps what `python -m tests.tasks.floors` measured with `linbench.verify.shallow`.
"""

import json
from collections.abc import Mapping
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from linbench.common.hashing import digest
from linbench.experiments.registry import registry
from linbench.tasks import random
from linbench.tasks.base import Task

PATH = Path(__file__).with_name("floors.json")
"""Scores of the baselines by `floor_key`, each with the preset they belong to."""

PASSES, FAILS = 0.1, 0.5
"""The law: a baseline comes at most a tenth of the way from chance to the optimum.

Up to half of the way it is named beside every table; further it may not come.
"""

ERROR = 0.01
"""Share of cases in which a true accuracy exceeds the upper bound of its interval."""

SURE = NormalDist().inv_cdf(1 - ERROR)
"""Standard errors up to that bound."""


class Floor(NamedTuple):
    """Scores of shallow baselines on a task, with its chance and optimum.

    accuracy: of each baseline, by name. answers: number of test answers that they were scored on. solved_by:
    the baselines that do what the task asks, which the law does not bind.
    """

    chance: float
    optimum: float
    answers: int
    accuracy: Mapping[str, float]
    solved_by: tuple[str, ...]

    @property
    def strongest(self) -> str | None:
        """The best of the baselines that the law binds; None if there is none."""
        bound = [name for name in self.accuracy if name not in self.solved_by]
        return max(bound, key=self.accuracy.__getitem__, default=None)

    @property
    def level(self) -> float:
        """The floor: the larger of chance and the best score of a baseline that the law binds."""
        return max(self.chance, self.accuracy[self.strongest] if self.strongest else 0.0)

    def describe(self) -> str:
        """Return a sentence on the floor: the best baseline that the law binds, and what that means."""
        best = self.strongest
        if best is None:
            return f"floor {self.level:.3f}: every baseline does what the task asks"
        way = f"{max(0.0, self.leak(best)):.0%} of the way from chance to the optimum, at most"
        said = {
            "passes": "so no baseline does well",
            "declared": "so read scores beside the floor",
            "fails": "so scores tell little",
        }[self.verdict]
        return f"floor {self.level:.3f}: the best other baseline, {best}, comes {way}, {said}"

    @property
    def warning(self) -> str:
        """The floor in words, for readers of scores, without a period."""
        return f"floor {self.level:.3f}, what the shallow baseline {self.strongest} scores"

    def leak(self, name: str) -> float:
        """Return how far a baseline comes from chance (0) to the optimum (1).

        It is the upper bound of an interval by Wilson's method, with an error of 1 %.
        """
        # as `scipy.stats.binomtest` has it, which takes a second to load and would do so before every table
        share, n = round(self.accuracy[name] * self.answers) / self.answers, self.answers
        spread = sqrt(share * (1 - share) / n + (SURE / n) ** 2 / 4)
        bound = (share + SURE**2 / (2 * n) + SURE * spread) / (1 + SURE**2 / n)
        return (bound - self.chance) / (self.optimum - self.chance)

    @property
    def verdict(self) -> Literal["passes", "declared", "fails"]:
        """State of the law: no baseline scores well; one does and is declared; or one does too well."""
        worst = self.leak(self.strongest) if self.strongest else 0.0
        return "passes" if worst <= PASSES else "declared" if worst <= FAILS else "fails"


def stored_floor(task: Mapping[str, Any]) -> Floor | None:
    """Return the floor of a task as an identity has it: name, version and settings. None: not measured."""
    kept = _stored().get(floor_key(task))
    if kept is None or task["name"] not in registry("task").entries:
        return None
    cls = registry("task").find(task["name"]).cls
    solved_by = cls(cls.Settings.parse(task["settings"], where="task")).solved_by
    return Floor(kept["chance"], kept["optimum"], kept["answers"], kept["accuracy"], solved_by)


def task_key(task: Task) -> dict[str, Any]:
    """Return the parts of a task's identity that decide its floor."""
    return {
        "name": task.name,
        "version": task.version,
        "draws": random.VERSION,
        "settings": task.settings.identity(),
    }


def floor_key(task: Mapping[str, Any]) -> str:
    """Return a short hash of a task's name, version, draws and settings."""
    return digest([task["name"], task["version"], task.get("draws", 0), task["settings"]])[:16]


@cache
def _stored() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return loaded

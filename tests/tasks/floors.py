"""Floors of all presets; `python -m tests.tasks.floors [TASK ...]` measures those that are missing."""

import json
import sys
from functools import cache
from typing import Any

from linbench.experiments.floors import PATH, floor_key, task_key
from linbench.tasks.base import Task
from linbench.verify.shallow import applies, shallow_scores
from tests.helpers.presets import SHIPPED_TASKS
from tests.helpers.tasks import build_task

Stored = dict[str, dict[str, Any]]


@cache
def presets() -> dict[str, tuple[str, str, Task]]:
    """Return task, preset and built task by the key of its floor; of presets alike in task the first."""
    found: dict[str, tuple[str, str, Task]] = {}
    for name, cls in SHIPPED_TASKS.items():
        for preset, values in cls.presets.items():
            task = build_task(cls, **values.task)
            if applies(task):
                found.setdefault(floor_key(task_key(task)), (name, preset, task))
    return found


def stored() -> Stored:
    """Return what is kept, by key."""
    loaded: Stored = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    return loaded


def main(names: list[str]) -> None:
    """Measure the presets of these tasks, or of all, that are not kept; forget those that are gone."""
    wanted = presets()
    kept = {key: value for key, value in stored().items() if key in wanted}
    for key, (name, preset, task) in wanted.items():
        if key in kept or (names and name not in names):
            continue
        scores = shallow_scores(task)
        kept[key] = {
            "task": name,
            "preset": preset,
            "chance": task.chance(),
            "optimum": task.optimum(),
            "answers": next(iter(scores.values())).answers,
            "accuracy": {name: round(score.accuracy, 4) for name, score in scores.items()},
        }
        lines = [f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in wanted if key in kept]
        PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(name, preset, kept[key]["accuracy"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

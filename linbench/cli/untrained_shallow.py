"""The shallow baselines of a task, for `linbench untrained TASK --shallow`."""

import json

from linbench.cli.options import task_settings
from linbench.common import escape
from linbench.common.errors import UserError


def show_shallow(
    name: str, preset: str | None, settings: list[str], *, trials: int | None, seed: int, as_json: bool
) -> None:
    """Score the shallow baselines of a task with these settings, and print them with the floor.

    Raises UserError: the task is not known or has vectors, or a number of trials was given.
    """
    from linbench.experiments.floors import Floor, task_key
    from linbench.experiments.plan_tasks import make_task
    from linbench.report.terminal import show
    from linbench.verify.shallow import BASELINES, applies, shallow_scores

    task, _, _ = make_task(name, preset=preset, settings=task_settings(settings, "untrained"))
    if not applies(task):
        raise UserError(
            f"{name} has no shallow baselines: inputs or answers are vectors, or all answers are read from"
            " one place."
        )
    if trials is not None:
        raise UserError(
            "--trials is not for --shallow, which always takes as many examples as docs/tasks.md says."
        )
    scores = shallow_scores(task, seed=seed)
    accuracy = {baseline: score.accuracy for baseline, score in scores.items()}
    answers = next(iter(scores.values())).answers
    floor = Floor(task.chance(), task.optimum(), answers, accuracy, task.solved_by)
    if as_json:
        found = {**task_key(task), **floor._asdict(), "floor": floor.level, "verdict": floor.verdict}
        print(json.dumps(found))
        return
    print(escape.one_line(f"{name}: chance {floor.chance:.3f}, {floor.describe()}"), end="\n\n")
    rows = [
        [baseline, f"{score:.3f}", "yes" if baseline in floor.solved_by else "", BASELINES[baseline]]
        for baseline, score in accuracy.items()
    ]
    show(["baseline", "accuracy", "is the task", "says"], rows, left=("baseline", "says"))

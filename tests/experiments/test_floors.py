"""Floors of tasks: the law that no shallow baseline scores well, for every preset that ships."""

import pytest

from linbench.experiments.floors import Floor, floor_key, stored_floor, task_key
from linbench.experiments.plan_tasks import make_task
from linbench.verify.shallow import BASELINES
from tests.tasks.floors import presets, stored

PRESETS = [
    # chance takes seconds where it has no closed form
    pytest.param(
        key, id=f"{name}-{preset}", marks=() if preset == next(iter(task.presets)) else pytest.mark.slow
    )
    for key, (name, preset, task) in presets().items()
]

FAILS = {
    **dict.fromkeys([f"dyck-hewitt-{k}-{d}" for k in (2, 8) for d in (3, 5, 10)], "bag"),
    **dict.fromkeys([f"stack-kimi-{length}" for length in (256, 512, 1024, 2048)], "beside_last"),
    **dict.fromkeys(
        [f"forgetting_mqar-zoology-{size}" for size in ("256-16", "256-25", "256-36", "2048-256")],
        "beside_first",
    ),
    "flip_flop-liu-dense": "ngram",
    "flip_flop-liu": "repeat",
    "majority-zoology-cumulative-16": "ngram",
}
"""Presets that a shallow baseline solves more than half of the way, with the baseline. See docs/tasks.md."""


@pytest.mark.parametrize("key", PRESETS)
def test_no_shallow_baseline_comes_half_of_the_way_to_the_optimum(key: str) -> None:
    name, preset, task = presets()[key]
    floor = stored_floor(task_key(task))
    assert floor is not None, "python -m tests.tasks.floors measures what is missing"
    # CPUs round the last bits otherwise
    assert (floor.chance, floor.optimum) == pytest.approx((task.chance(), task.optimum()), rel=1e-12)
    failing = floor.strongest if floor.verdict == "fails" else None
    assert failing == FAILS.get(f"{name}-{preset}"), floor.describe()
    assert set(task.solved_by) <= set(BASELINES)


def test_only_present_presets_have_a_floor() -> None:
    assert set(stored()) == set(presets())


def floor(**accuracy: float) -> Floor:
    return Floor(0.5, 1.0, 10**6, accuracy, ("suffix",))


@pytest.mark.parametrize(
    ("accuracy", "verdict"), [(0.54, "passes"), (0.56, "declared"), (0.74, "declared"), (0.76, "fails")]
)
def test_a_tenth_of_the_way_passes_and_half_of_it_fails(accuracy: float, verdict: str) -> None:
    found = floor(last=accuracy, prior=0.5)
    assert (found.verdict, found.strongest, found.level) == (verdict, "last", accuracy)


def test_what_the_task_asks_is_no_floor() -> None:
    found = floor(suffix=1.0, prior=0.4)
    assert (found.verdict, found.strongest, found.level) == ("passes", "prior", 0.5)
    assert (floor(suffix=1.0).verdict, floor(suffix=1.0).strongest) == ("passes", None)


def test_few_answers_leave_a_score_in_doubt() -> None:
    # with z = 2.3263: (.54 + z^2/200 + z sqrt(.54 .46 / 100 + z^2/40000)) / (1 + z^2/100) = .6509
    doubtful = Floor(0.5, 1.0, 100, {"last": 0.54}, ())
    assert doubtful.leak("last") == pytest.approx((0.6509 - 0.5) / 0.5, abs=2e-4)
    assert doubtful.verdict == "declared"


def test_other_settings_have_no_floor_yet() -> None:
    task, _, _ = make_task("mqar", preset=None, settings={"task.kv_pairs": 3})
    assert stored_floor(task_key(task)) is None
    assert floor_key(task_key(task)) not in stored()

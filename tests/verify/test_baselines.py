import pytest
import torch

from linbench.experiments.plan_tasks import make_task
from linbench.tasks.base import Prediction, Task
from linbench.verify.baselines import baselines, has_baselines


def task_of(name: str, **settings: str) -> Task:
    return make_task(name, preset=None, settings={f"task.{knob}": value for knob, value in settings.items()})[
        0
    ]


def test_baselines_are_scored_on_the_test_split_of_the_seed() -> None:
    """The examples come in two batches, and the second is smaller."""
    task = task_of("regression", points="6")
    found = baselines(task, examples=300, seed=4)
    batch = task.sample(torch.arange(300), seed=4, split="test")
    assert list(found) == [*task.baselines(batch), "optimum"]
    for name, prediction in {
        **task.baselines(batch),
        "optimum": Prediction(task.solve(batch), torch.zeros(300, 6)),
    }.items():
        value, weight = task.score(batch, prediction)["mse"]
        assert found[name].metrics["mse"] == pytest.approx(float(value / weight))
        by_place = found[name].slices["place"]
        assert by_place["at"] == list(range(6))
        assert by_place["mse"]["weight"] == [300] * 6
        assert by_place["mse"]["sum"] == pytest.approx(task.score(batch, prediction)["mse/place"][0].tolist())


def test_what_knows_more_than_a_model_is_an_upper_bound_and_no_optimum() -> None:
    found = baselines(task_of("formal_language", automata="50", held_out="20"), examples=20)
    assert list(found) == ["1-gram", "2-gram", "3-gram", "upper bound"]
    assert set(found["2-gram"].metrics) == {"accuracy", "tvd"}
    assert set(found["upper bound"].metrics) == {"accuracy"}
    assert all("nll" not in of.slices["visits"] for of in found.values())


def test_few_tasks_have_baselines() -> None:
    assert has_baselines(type(task_of("regression")))
    assert not has_baselines(type(task_of("mqar")))
    assert list(baselines(task_of("mqar"), examples=3)) == ["optimum"]

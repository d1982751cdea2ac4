"""Tests of matching results of two runs, and of the parts of their environments that must agree."""

from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.helpers.gate import NOISE, SEEDS, gated, sentences


@pytest.fixture
def runs(a_result: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Six seeds of a model about a score."""
    return lambda label="deltanet", score=0.8, seeds=SEEDS, **more: [
        a_result(label, seed, score + NOISE[seed % 6], **more) for seed in seeds
    ]


def changed(results: list[Any], change: Callable[[Any], None]) -> list[Any]:
    for result in results:
        change(result)
    return results


def in_cell(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(result: Any) -> None:
        place = result["cell"]
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


LAYER = ("model", "layers", 0)


@pytest.mark.parametrize(
    "change",
    [
        in_cell(*LAYER, "version", value=2),
        in_cell(*LAYER, "kernel", value={"matrix_state": 9}),
        in_cell(*LAYER, "source", value="f" * 64),
        in_cell("model", "backbone", "version", value=9),
        in_cell("protocol", "version", value=9),
        in_cell("schema", value=9),
        lambda result: result["environment"].update(commit="f" * 40),
        lambda result: result["environment"].update(threads=64),
    ],
)
def test_code_may_differ(runs: Callable[..., Any], change: Callable[[Any], None]) -> None:
    assert sentences(runs(), changed(runs(), change)) == (0, ())
    assert sentences(runs(), changed(runs(score=0.5), change)) == (4, ())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(in_cell("device", value="NVIDIA H200"), id="device"),
        pytest.param(lambda r: r["environment"].update(packages={"torch": "2.9.0+cpu"}), id="torch"),
        pytest.param(in_cell("task", "version", value=2), id="version of the task"),
        pytest.param(in_cell("task", "draws", value=3), id="draws of the task"),
        pytest.param(in_cell("task", "source", value="ab" * 32), id="source of the task"),
    ],
)
def test_what_matters_must_agree(
    runs: Callable[..., Any], change: Callable[[Any], None], snapshot: SnapshotAssertion
) -> None:
    """And a drop is no regression then."""
    others = runs("kda"), changed(runs("kda"), change)
    assert sentences(runs() + others[0], changed(runs(score=0.5), change) + others[1]) == snapshot


def test_builds_of_one_torch_and_a_cpus_triton_do_not_matter_but_a_gpus_does(
    runs: Callable[..., Any],
) -> None:
    def on(device: str, **packages: str) -> list[Any]:
        return changed(runs(device=device), lambda result: result["environment"].update(packages=packages))

    assert (
        gated(on("cpu", torch="2.9.0+cpu", triton="3.4"), on("cpu", torch="2.9.0", triton="3.5")).exit_code
        == 0
    )
    card = "NVIDIA H200"
    assert sentences(on(card, torch="2.9.0", triton="3.4"), on(card, torch="2.9.0", triton="3.5"))[0] == 5
    assert sentences(
        on(card, torch="2.9.0", triton="3.4"),
        on(card, torch="2.9.1", triton="3.5"),
        may_differ=["torch", "triton"],
    ) == (0, ())


def test_another_setting_is_another_cell_and_a_new_one_is_not(
    runs: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert sentences(runs(), runs(heads=4)) == snapshot(name="another")
    added = changed(runs(), in_cell(*LAYER, "settings", "gate", value="none"))
    assert gated(runs(), added) == gated(added, runs()) == gated(runs(), runs())
    assert sentences(runs() + runs("kda"), added) == snapshot(name="new")


def test_a_mixture_is_not_the_task_alone(runs: Callable[..., Any]) -> None:
    assert (
        gated(
            runs(), changed(runs(), in_cell("task", "test", value=[{"settings": {"kv_pairs": 8}}]))
        ).exit_code
        == 5
    )


def test_which_of_two_a_new_setting_belongs_to_is_not_guessed(runs: Callable[..., Any]) -> None:
    two = runs() + changed(runs(), in_cell(*LAYER, "settings", "window", value=16))
    added = changed(runs(), in_cell(*LAYER, "settings", "gate", value="none"))
    assert sentences(two, added)[0] == 5


def test_a_rate_that_was_searched_for_is_an_answer_and_one_that_was_given_a_question(
    runs: Callable[..., Any],
) -> None:
    found = {"seeds": [1000], "best": 0.01, "edge": False, "accuracies": []}
    assert gated(runs(search=found, lr=0.01), runs(search=found, lr=0.003)).exit_code == 0
    assert gated(runs(lr=0.01), runs(lr=0.003)).exit_code == 5
    assert gated(runs(search=found), runs()).exit_code == 5


WIDTH = ("model", "backbone", "settings", "channel_width")
HEAD_DIM = (*LAYER, "settings", "head_dim")


@pytest.mark.parametrize(("setting", "size"), [(WIDTH, "parameters"), (HEAD_DIM, "recurrent")])
def test_a_size_that_was_chosen_for_a_changed_layer_is_an_answer(
    runs: Callable[..., Any], setting: tuple[Any, ...], size: str
) -> None:
    def of(chosen: int, count: int, score: float = 0.8) -> list[Any]:
        def sized(result: Any) -> None:
            in_cell(*setting, value=chosen)(result)
            model = {**result["model"], "state": {**result["model"]["state"]}}
            (model if size in model else model["state"])[size] = count
            result["model"] = model

        return changed(runs(score=score), sized)

    assert sentences(of(96, 16_000), of(80, 16_200)) == (0, ())
    assert sentences(of(96, 16_000), of(80, 16_200, score=0.5)) == (4, ())
    assert sentences(of(96, 16_000), of(80, 20_000))[0] == 5, "another size is another question"
    assert sentences(of(96, 16_000) + of(80, 15_900), of(88, 16_200))[0] == 5, "which of two is not guessed"
    for counts in ((0, 0), (0, 16_000)):
        before, after = (of(chosen, count) for chosen, count in zip((96, 80), counts, strict=True))
        assert sentences(before, after)[0] == 5, "no size is chosen for nothing"
    both = of(96, 16_000) + of(80, 15_900)
    assert gated(both, both).exit_code == 0

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.verify.gradient_panels import short
from linbench.verify.update_rules import Trials
from tests.helpers.cells import tiny_settings
from tests.pages.regression import load


def test_what_is_read_where_two_values_were_written(linbench: Callable[..., Any]) -> None:
    read = {row["rule"]: row["recalled"] for row in json.loads(linbench("untrained", "blend", "--json").out)}
    assert read["sum"] == pytest.approx(15)
    assert read["normalised sum"] == pytest.approx(7.5)
    assert read["delta, beta 1"] == pytest.approx(10)
    assert read["delta, beta 0.5"] == pytest.approx(6.25)


@pytest.mark.parametrize("what", ["overwriting", "retention", "blend", "reflections", "similarity"])
def test_a_line_for_every_row(linbench: Callable[..., Any], what: str) -> None:
    words = ("untrained", what, "--trials", "2", "--dim", "16")
    lines, rows = linbench(*words).out.splitlines(), json.loads(linbench(*words, "--json").out)
    assert len(lines) == len(rows) + 1
    assert lines[0].split() == list(rows[0])
    assert lines[1].startswith(rows[0]["rule"])


def test_baselines_of_a_task_stand_with_its_settings_and_by_its_slices(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    words = (
        "untrained",
        "regression",
        "--preset",
        "drift",
        "--set",
        "task.points=8",
        "--trials",
        "40",
        "--seed",
        "3",
    )
    lines, told = linbench(*words).out.splitlines(), json.loads(linbench(*words, "--json").out)
    assert lines[0].startswith("regression: dimension 8, ")
    assert lines[0].endswith(", seed 3")
    assert told["settings"]["drift"]
    assert list(told["baselines"])[-1] == "optimum"
    whole, *parts = (
        {line.split("  ")[0]: line.split()[-5:] for line in lines[first : first + 7]} for first in (2, 11, 20)
    )
    assert len(lines) == 27
    assert [lines[0], lines[10], lines[19]] == snapshot
    for metric, part in zip(("accuracy", "mse"), parts, strict=True):
        assert part["baseline"] == ["0", "1", "2", "4", "7"]
        for name, of in told["baselines"].items():
            assert f"{of['metrics'][metric]:.3f}" in whole[name]
            by_place = of["slices"]["place"][metric]
            assert part[name] == [
                f"{by_place['sum'][at] / by_place['weight'][at]:.3f}" for at in (0, 1, 2, 4, 7)
            ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Trials]:
    """The trials that rows of regression are asked for; those that a page shows are given in their place."""
    found: list[Trials] = []

    def stored_rows(*, trials: Trials) -> list[dict[str, Any]]:
        found.append(trials)
        return load()

    monkeypatch.setattr("linbench.verify.regression.regression", stored_rows)
    return found


@pytest.mark.slow
def test_update_rules_on_regression_stand_before_the_baselines_of_the_task(
    linbench: Callable[..., Any], asked: list[Trials], tmp_path: Path
) -> None:
    words = ("untrained", "regression", "--trials", "4", "--dim", "6", "--seed", "1")
    shown = linbench(*words, "--save", str(tmp_path)).out
    lines, told = shown.splitlines(), json.loads(linbench(*words, "--json").out)
    assert asked == 2 * [Trials(4, 6, 1)]
    exact = [f"{row['error']:.2g}" for row in load() if row["rule"] == "exact"]
    by_condition, by_drift = (line.split()[1:] for line in lines if line.startswith("exact "))
    assert [*by_condition, *by_drift[1:]] == exact
    assert by_drift[0] == by_condition[1], "no drift, at condition number 10"
    assert [row["rule"] for row in told["update_rules"]] == [row["rule"] for row in load()]
    assert "\nregression: dimension 8, " in shown
    assert all(f"\n{name} " in shown for name in told["baselines"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"regression.{suffix}" for suffix in ("png", "svg", "txt")
    ]


def test_with_a_preset_the_baselines_of_the_task_stand_alone(
    linbench: Callable[..., Any], asked: list[Trials]
) -> None:
    words = ("untrained", "regression", "--preset", "drift", "--trials", "4")
    assert linbench(*words).out.startswith("regression: dimension 8, ")
    assert "update_rules" not in json.loads(linbench(*words, "--json").out)
    assert asked == []


def test_where_a_solver_gives_answers_alone_its_other_metrics_are_left_out(
    linbench: Callable[..., Any],
    snapshot: SnapshotAssertion,
) -> None:
    words = (
        "untrained",
        "formal_language",
        "--set",
        "task.automata=50",
        "--set",
        "task.held_out=20",
        "--trials",
        "9",
    )
    parts = linbench(*words).out.split("\n\n")[1:]
    titles = [part.splitlines()[0] for part in parts]
    of_words, of_tvd = (
        next(part for part in parts if part.startswith(title))
        for title in ("accuracy by word", "tvd by visits")
    )
    slices = [f"{metric} by {slice_}, " for metric in ("accuracy", "tvd") for slice_ in ("visits", "word")]
    assert all(title.startswith(start) for title, start in zip(titles[1:], slices, strict=True))
    assert titles[1:] == snapshot
    assert parts[0].splitlines()[-1].split()[-1] == "–"
    assert "\nupper bound " in of_words
    assert "upper bound" not in of_tvd


def test_baselines_are_scored_on_as_many_examples_as_models_are(linbench: Callable[..., Any]) -> None:
    title = linbench("untrained", "regression", "--set", "task.points=2").out.splitlines()[0]
    assert "; 2048 examples, " in title
    assert title.endswith("test split, seed 0")


def test_gradients_stand_by_model_and_distance_and_are_drawn(
    linbench: Callable[..., Any], tmp_path: Path
) -> None:
    words = ("untrained", "gradient", "--model", "gla,base_conv", "--trials", "2", "--dim", "16")
    lines = linbench(*words, "--save", str(tmp_path)).out.splitlines()
    rows = json.loads(linbench(*words, "--json").out)
    assert lines[2].split() == ["model", *(str(row["distance"]) for row in rows[:10])]
    for line, model in zip(lines[3:], ("gla", "base_conv"), strict=True):
        sizes = [row["log_size"] for row in rows if row["model"] == model]
        assert line.split() == [model, *map(short, sizes)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"gradient.{suffix}" for suffix in ("png", "svg", "txt")
    ]


def trained_words(**more: str) -> list[str]:
    settings = {**tiny_settings(8), **{name.replace("__", "."): value for name, value in more.items()}}
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def test_gradients_before_and_after_training_stand_side_by_side(
    linbench: Callable[..., Any], tmp_path: Path
) -> None:
    words = (
        "untrained",
        "gradient",
        "--after",
        "mqar",
        "--model",
        "rnn,rnn",
        "--trials",
        "2",
        *trained_words(),
    )
    folder = ("--save", str(tmp_path))
    lines = linbench(*words, *folder).out.splitlines()
    ended = linbench(*words, *folder, "--json")
    rows = json.loads(ended.out)
    assert ended.err == ""
    assert re.findall(r"mqar|\d+", lines[1]) == ["mqar", "16", "16"]
    assert lines[3].split() == ["model", "training", *(str(row["distance"]) for row in rows), "accuracy"]
    for line, when in zip(lines[4:], ("before", "after"), strict=True):
        assert line.split()[:-1] == ["rnn", when, *(short(row[when]) for row in rows)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gradient-after",
        *(f"gradient-after.{suffix}" for suffix in ("png", "svg", "txt")),
    ]


def test_a_model_that_cannot_be_trained_is_told_of(linbench: Callable[..., Any]) -> None:
    words = trained_words(protocol__lr="1e20", protocol__clip="null")
    ended = linbench("untrained", "gradient", "--after", "mqar", "--model", "rnn", *words)
    assert (ended.code, ended.out) == (3, "")
    assert "1 of 1 cells" in ended.err
    assert "rnn diverged: " in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["forgetting"], "unknown question 'forgetting'; "),
        (
            ["regresion"],
            (
                "unknown question 'regresion'; did you mean 'regression'? "
                "Allowed: blend, capacity, formal_language, gradient, lano, overwriting, reflections,"
                " regression, retention, similarity."
            ),
        ),
        (
            ["mqar"],
            "mqar has no baselines of its own; formal_language, lano, regression have. --shallow scores"
            " those of any task.",
        ),
        (
            ["regression", "--preset", "drift", "--dim", "8"],
            "--dim sets the size of random keys and values; regression has settings of its own, ",
        ),
        (
            ["formal_language", "--dim", "8"],
            "--dim sets the size of random keys and values; formal_language has settings of its own, ",
        ),
        (["regression", "--dim", "257"], "regression takes up to 256 dimensions, not 257."),
        (["regression", "--trials", "1"], "regression needs at least 2 trials: "),
        (["capacity", "--save", "x"], "--save needs the question regression "),
        (["regression", "--preset", "drift", "--save", "x"], "--save needs the question regression "),
        (
            ["blend", "--preset", "drift"],
            "--preset and --set need a task; blend is a question about update rules and takes --dim, ",
        ),
        (["blend", "--set", "task.keys=3"], "--preset and --set need a task; "),
        (
            ["gradient", "--set", "task.keys=3"],
            "--preset and --set need a task; gradient is a question about layers, with --after TASK.",
        ),
        (
            ["blend", "--model", "gla"],
            "--model, --form and --after are for the question gradient; blend has no layers.",
        ),
        (["blend", "--after", "mqar"], "--model, --form and --after are for the question gradient; blend"),
        (["gradient", "--after", "mqra"], "unknown task 'mqra'; did you mean 'mqar'? "),
        (
            ["gradient", "--after", "regression", "--model", "rnn"],
            "--after needs a task whose inputs are tokens, such as mqar; those of regression are vectors.",
        ),
        (["gradient", "--after", "mqar", "--preset", "quik"], "unknown preset of mqar 'quik'; did you mean "),
        (["gradient", "--after", "mqar", "--model", "gla+rnn"], "'gla+rnn' is a pattern of several mixers; "),
        (["gradient", "--after", "mqar", "--model", "rnnn"], "unknown model 'rnnn'; did you mean 'rnn'? "),
        (
            ["gradient", "--after", "mqar", "--dim", "8"],
            "--dim is the width of layers that are not trained; ",
        ),
        (
            [
                *("gradient", "--after", "mqar/quick", "--model", "rnn"),
                *("--set", "protocol.schedule=wsd", "--set", "protocol.rungs=3"),
            ],
            "--after trains a model once; protocol.rungs = 3 asks for several budgets.",
        ),
        (
            ["regression", "--form", "native"],
            "--model, --form and --after are for the question gradient; regression",
        ),
        (["gradient", "--model", "glaa"], "unknown model 'glaa'; did you mean 'gla'? "),
        (
            ["gradient", "--model", "gla+rnn"],
            "'gla+rnn' is a pattern of several mixers; name them one by one.",
        ),
        (["gradient", "--form", "controled"], "unknown form 'controled'; did you mean 'controlled'? "),
        (
            ["regression", "--set", "protocol.lr=3"],
            "untrained takes only settings of the task (task.NAME); protocol.lr has no effect here.",
        ),
        (
            ["regression", "--set", "points=3"],
            (
                "unknown setting 'points'; did you mean 'task.points'? Allowed: model.NAME, protocol.NAME,"
                " task.NAME."
            ),
        ),
        (
            ["regression", "--set", "tsk.points=3"],
            "unknown setting 'tsk.points'; did you mean 'task.points'? ",
        ),
        (["capacity", "--dim", "1"], "--dim takes a whole number from 2 to 4,096, not '1'."),
        (["capacity", "--dims", "8"], "no such option: --dims"),
        ([], "missing argument '"),
        (["regression", "--preset", "nosy"], "unknown preset of regression 'nosy'; did you mean 'noisy'?"),
    ],
)
def test_nothing_else_can_be_asked(linbench: Callable[..., Any], words: list[str], said: str) -> None:
    ended = linbench("untrained", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"linbench: {said}")
    assert ended.err.count("\n") == 1

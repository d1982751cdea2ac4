"""The verbs `list` and `show`."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.experiments.system import shipped as systems
from linbench.models.base import GENERATIONS
from linbench.models.deltanet import DeltaNet


def test_a_task_is_shown_with_its_own_settings_and_no_others(linbench: Callable[..., Any]) -> None:
    shown = linbench("show", "task", "variable_overwrite").out
    assert "overwrites  int, ..." in shown
    assert "one answer" in linbench("show", "task", "parity", "--preset", "grazzi").out
    ended = linbench("show", "task", "mqar", "--set", "model.d_model=8")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "model.d_model" in ended.err
    assert "did you mean 'task.kv_pairs'? " in linbench("show", "task", "mqar", "--set", "kv_pairs=3").err
    assert "task.overwrites=0,1,2,4 " in shown
    assert "asked" in linbench("show", "task", "variable_overwrite", "--set", "task.overwrites=(0, 1)").out


@pytest.mark.slow
def test_a_task_is_shown_with_its_baselines_and_what_its_bound_is(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    shown = linbench("show", "task", "regression", "--preset", "noisy", "--set", "task.points=4").out
    assert re.search(r"optimum 0\.\d{2,3};", shown), "an estimate, with the places it has"
    assert "optimum 0.8594;" in linbench("show", "task", "regression").out
    assert "\nbaselines\n  averaging " in shown
    assert "  least squares, penalty 1 " in shown
    assert shown.count("  mse ") == 5
    told = linbench(
        "show", "task", "formal_language", "--set", "task.automata=50", "--set", "task.held_out=20"
    ).out
    assert ", upper bound 0.9" in told
    assert "optimum" not in told
    (slices,) = [line for line in told.splitlines() if "`linbench untrained formal_language`" in line]
    assert slices == snapshot
    assert "\nbaselines\n" not in linbench("show", "task", "parity").out


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("what", ["tasks", "models", "systems"])
def test_names_are_listed_whole_on_any_terminal(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, what: str, width: int
) -> None:
    names = [row["name"] for row in json.loads(linbench("list", what, "--json").out)[what]]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [re.sub("\x1b.*?m", "", line) for line in linbench("list", what).out.splitlines()]
    assert [line.split()[0] for line in lines if re.match("  [a-z]", line)] == ["name", *names]
    assert max(map(len, lines)) <= width


def test_systems_are_listed_and_shown(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    rows = json.loads(linbench("list", "systems", "--json").out)["systems"]
    assert {row["name"] for row in rows} == {*systems()}
    assert [line.split("\t")[0] for line in linbench("list", "systems").out.splitlines()] == [
        row["name"] for row in rows
    ]
    shown = linbench("show", "system", "kimi_linear").out
    assert shown == linbench("show", "model", "kimi_linear").out
    assert shown == snapshot
    assert (
        json.loads(linbench("show", "system", "zamba", "--json").out)["layers"] == systems()["zamba"].pattern
    )
    unknown = linbench("show", "system", "zambaa")
    assert (unknown.code, "did you mean 'zamba'" in unknown.err) == (2, True)


def test_lists_and_cards(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    models = linbench("list", "models")
    rows = [line.split("\t") for line in models.out.splitlines()]
    names, generations = [row[0] for row in rows], [row[1] for row in rows]
    assert list(dict.fromkeys(generations)) == [one for one in GENERATIONS if one in generations], (
        "grouped by generation, in the order of the story"
    )
    assert ["deltanet", "delta rule", "matrix_state"] in [row[:3] for row in rows]
    assert {"attention", "base_conv", "deltanet", "gated_deltanet", "linear_attention"} <= set(names)
    years = {
        row["name"]: row["year"] for row in json.loads(linbench("list", "models", "--json").out)["models"]
    }
    assert (years["attention"], years["kda"], years["gru"], years["rnn"]) == ("2017", "2025", "2014", "1990")
    assert all(years.values())
    tasks = linbench("list", "tasks").out.splitlines()
    (mqar,) = [line.split("\t") for line in tasks if line.startswith("mqar\t")]
    assert mqar == snapshot
    asked = [row["skill"] for row in json.loads(linbench("list", "tasks", "--json").out)["tasks"]]
    assert len([one for one, before in zip(asked, [None, *asked], strict=False) if one != before]) == len(
        set(asked)
    ), "grouped by what they ask"
    assert {row["name"] for row in json.loads(linbench("list", "models", "--json").out)["models"]} >= {
        "attention"
    }
    task = linbench("show", "task", "mqar", "--set", "task.kv_pairs=2", "--set", "task.power_a=1").out
    for part in (
        "kv_pairs",
        "quick-hard",
        "means",
        "does not tell",
        "remember: ",
        "chance 0.5000",
        "distance (below 64)",
        "none of 2,048 test examples",
    ):
        assert part in task
    card = linbench("show", "model", "gated_deltanet").out
    for part in ("2412.06464", "neg_eigval", "the controlled form sets", "conv = 4"):
        assert part in card
    assert json.loads(linbench("show", "model", "attention", "--json").out)["name"] == "attention"


def test_a_variant_is_shown_as_an_online_learner_and_a_plug_in_without_a_declaration_is_not(
    linbench: Callable[..., Any],
) -> None:
    title = "\nas an online learner\n"
    shown = linbench("show", "model", "deltanet").out.partition(title)[2].splitlines()
    declared = DeltaNet.learner._asdict()
    assert [line.split(maxsplit=1) for line in shown[:4]] == [
        [name, words] for name, words in declared.items()
    ]
    told = json.loads(linbench("show", "model", "deltanet", "--json").out)
    assert [words for _, words in told[title.strip()]] == list(declared.values())
    assert title not in linbench("show", "model", "./examples/pulse.py:Pulse").out

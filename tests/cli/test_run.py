"""The verbs as a user meets them, in one process and with tiny settings."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linbench as package
from linbench.models.base import GENERATIONS

MINE = """
import torch
from torch import nn

class RunningMean(nn.Module):
    '''The mean of all that was seen.'''
    def __init__(self, dim, gain=1.0):
        super().__init__()
        self.linear, self.gain = nn.Linear(dim, dim), gain

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1, device=x.device)
        return self.gain * self.linear(x).cumsum(1) / count[:, None]
"""
BOTH = "deltanet,gated_deltanet"


def measured(results: list[dict[str, Any]]) -> list[Any]:
    """All that must not depend on when and where it was run."""
    return [{name: value for name, value in result.items() if name not in {"seconds", "environment"}} for result in results]


@pytest.mark.slow
def test_side_by_side_table_and_figures(linbench: Callable[..., Any], tiny: list[str]) -> None:
    ended = linbench("run", "mqar", "--model", BOTH, "--seeds", "0,1", *tiny)
    assert ended.code == 0
    lines = ended.err.splitlines()
    assert [line.split(" ")[0] for line in lines[:4]] == ["1/4", "2/4", "3/4", "4/4"]
    assert "deltanet seed 0: accuracy 0." in lines[0]
    assert ended.out.startswith("### mqar, native\n\n| model ")
    rows = [line for line in ended.out.splitlines() if line.startswith(("| deltanet", "| gated"))]
    assert len(rows) == 2
    assert all("±" in row for row in rows)
    names = {path.suffix for path in Path("results/figures").iterdir()}
    assert names == {".png", ".svg", ".txt"}
    assert "Native form: each model in its published parameterisation" in ended.out


def test_json_is_all_there_is_on_standard_output(linbench: Callable[..., Any], tiny: list[str]) -> None:
    ended = linbench("run", "mqar", "--model", "attention", "--json", *tiny)
    (result,) = json.loads(ended.out)
    assert result["status"] == "ok"
    assert result["model"]["state"] == {"recurrent": 0, "cache": 16 * 2 * 16 * 2, "convolution": 0, "shift": 0, "total": 1024}
    assert [point["step"] for point in result["curve"]] == [2, 4, 6, 8, 10]
    assert set(result["slices"]) == {"distance", "slot"}
    assert sum(result["slices"]["slot"]["accuracy"]["weight"]) == 16 * 2
    right, counted = (sum(result["slices"]["distance"]["accuracy"][name]) for name in ("sum", "weight"))
    assert result["metrics"]["accuracy"] == right / counted


def test_test_lengths_are_tests_of_their_own(linbench: Callable[..., Any], tiny: list[str]) -> None:
    ended = linbench("run", "mqar", "--model", "deltanet", "--test-lengths", "1x,2x", "--json", *tiny)
    (result,) = json.loads(ended.out)
    assert [test["seq_len"] for test in result["tests"]] == [16, 32]
    assert [test["settings"]["kv_pairs"] for test in result["tests"]] == [2, 2]
    assert list(Path("results/figures").glob("*-lengths.png"))
    for wrong in ("two", ""):
        ended = linbench("run", "mqar", "--model", "deltanet", "--test-lengths", wrong, *tiny)
        assert (ended.code, ended.err) == (2, f"linbench: test lengths are multiples of the task's such as 1x,2x,4x, not '{wrong}'.\n")


@pytest.mark.usefixtures("undrawn")
def test_finished_cells_are_not_repeated_unless_asked(linbench: Callable[..., Any], tiny: list[str]) -> None:
    words = ("run", "mqar", "--model", "deltanet", *tiny)
    linbench(*words)
    (path,) = Path("results").glob("*.json")
    before = path.stat().st_mtime_ns
    assert "finished earlier" in linbench(*words).err
    assert path.stat().st_mtime_ns == before
    assert "finished earlier" not in linbench(*words, "--again").err
    assert path.stat().st_mtime_ns != before


@pytest.mark.usefixtures("undrawn")
def test_an_unreadable_result_is_set_aside_and_its_cell_runs_again(linbench: Callable[..., Any], tiny: list[str]) -> None:
    words = ("run", "mqar", "--model", "deltanet", *tiny)
    linbench(*words)
    (path,) = Path("results").glob("*.json")
    path.write_text(path.read_text()[:-30])
    with pytest.warns(UserWarning, match=f"a result is unreadable and does not count: {path}"):
        assert package.load("results").empty
    ended = linbench(*words)
    assert f"linbench: a result is unreadable and does not count: {path}.unreadable-0.\n" in ended.err
    assert "finished earlier" not in ended.err
    assert len(list(Path("results").glob("*.unreadable-0"))) == 1
    assert "finished earlier" in linbench(*words).err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "model", ["gated_deltanet", *(pytest.param(name, marks=pytest.mark.slow) for name in ("attention", "linear_attention", "deltanet+attention[window=4]"))]
)
def test_the_same_command_twice_gives_the_same_bits(linbench: Callable[..., Any], tiny: list[str], model: str) -> None:
    found = [json.loads(linbench("run", "mqar", "--model", model, "--json", "--results", folder, *tiny).out) for folder in ("one", "two")]
    assert measured(found[0]) == measured(found[1])
    assert len(found[0][0]["curve"]) == 5


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_cells_result_does_not_depend_on_what_ran_before_it(linbench: Callable[..., Any], tiny: list[str]) -> None:
    alone = json.loads(linbench("run", "mqar", "--model", "deltanet", "--json", "--results", "one", *tiny).out)
    after = json.loads(linbench("run", "mqar", "--model", "attention,deltanet", "--json", "--results", "two", *tiny).out)
    assert measured(alone) == measured(after[1:])


@pytest.mark.usefixtures("undrawn")
def test_seeds_differ(linbench: Callable[..., Any], tiny: list[str]) -> None:
    first, second = json.loads(linbench("run", "mqar", "--model", "deltanet", "--seeds", "0-1", "--json", *tiny).out)
    assert first["curve"] != second["curve"]


@pytest.mark.usefixtures("undrawn")
def test_a_users_module_by_path_is_trained_and_shown(linbench: Callable[..., Any], tiny: list[str]) -> None:
    Path("mine.py").write_text(MINE)
    ended = linbench("run", "mqar", "--model", "./mine.py:RunningMean,mine.py:RunningMean+deltanet", "--set", "model.gain=0.5", *tiny)
    assert ended.code == 0
    assert "| undeclared" in ended.out
    assert "mine.py:RunningMean+deltanet" in ended.out
    assert linbench("run", "mqar", "--model", "mine.py:RunningMean", "--set", "model.gian=1", *tiny).err.count("did you mean 'model.gain'") == 1


def test_a_task_is_shown_with_its_own_settings_and_no_others(linbench: Callable[..., Any]) -> None:
    shown = linbench("show", "task", "variable_overwrite").out
    assert "overwrites  int, ..." in shown
    assert "one answer due" in linbench("show", "task", "parity", "--preset", "grazzi").out
    ended = linbench("show", "task", "mqar", "--set", "model.d_model=8")
    assert (ended.code, ended.err) == (2, "linbench: show takes settings of the task, as task.NAME; model.d_model changes nothing that is shown.\n")
    assert "did you mean 'task.kv_pairs'? " in linbench("show", "task", "mqar", "--set", "kv_pairs=3").err
    assert "task.overwrites=0,1,2,4 " in shown
    assert "asked" in linbench("show", "task", "variable_overwrite", "--set", "task.overwrites=(0, 1)").out


@pytest.mark.slow
def test_a_task_is_shown_with_its_baselines_and_what_its_bound_is(linbench: Callable[..., Any]) -> None:
    shown = linbench("show", "task", "regression", "--preset", "noisy", "--set", "task.points=4").out
    assert re.search(r"optimum 0\.\d{2,3};", shown), "an estimate, with the places it has"
    assert "optimum 0.8594;" in linbench("show", "task", "regression").out
    assert "\nbaselines\n  averaging " in shown
    assert "  least squares, penalty 1 " in shown
    assert shown.count("  mse ") == 5
    told = linbench("show", "task", "formal_language", "--set", "task.automata=50", "--set", "task.held_out=20").out
    assert ", upper bound 0.9" in told
    assert "optimum" not in told
    assert "`linbench untrained formal_language` tells them by visits and word" in told
    assert "\nbaselines\n" not in linbench("show", "task", "parity").out


PLAIN = {
    "bare": """
class Bare(nn.Module):
    def forward(self, x):
        return x
""",
    "default": """
class Default(nn.Module):
    def __init__(self, dim, act=nn.GELU, heads=8, sizes=(1, 2)):
        super().__init__()
        assert heads == 8
        self.act = act()

    def forward(self, x):
        return self.act(x)
""",
    "open": """
class Open(nn.Module):
    def __init__(self, hidden_size, **more):
        super().__init__()
        assert more in ({}, {'sizes': [1, 2]}), more

    def forward(self, x):
        return x, None
""",
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_ordinary_constructors_get_the_width_and_what_the_user_says(linbench: Callable[..., Any], tiny: list[str], name: str) -> None:
    Path(f"{name}.py").write_text("from torch import nn\n" + PLAIN[name])
    assert linbench("run", "mqar", "--model", f"{name}.py", *tiny).code == 0
    if name != "bare":
        assert linbench("run", "mqar", "--model", f"./{name}.py", "--set", "model.sizes=[1,2]", *tiny).code == 0


@pytest.mark.usefixtures("undrawn")
def test_settings_of_one_mixer_reach_it_however_its_path_is_written(linbench: Callable[..., Any], tiny: list[str]) -> None:
    Path("mine.py").write_text(MINE)
    for spelling in ("model.mine.py:RunningMean.gain=0.5", "model../mine.py:RunningMean.gain=0.5"):
        (result,) = json.loads(linbench("run", "mqar", "--model", "./mine.py:RunningMean", "--set", spelling, "--json", *tiny).out)
        assert result["cell"]["model"]["layers"][0]["settings"] == {"gain": 0.5}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_module_and_a_neighbour_in_the_working_folder_are_found(linbench: Callable[..., Any], tiny: list[str]) -> None:
    Path("a_neighbour.py").write_text(MINE)
    Path("uses_it.py").write_text("print('loud')\nfrom a_neighbour import RunningMean\nclass Mine(RunningMean):\n    pass\n")
    ended = linbench("run", "mqar", "--model", "uses_it:Mine", "--model", "./uses_it.py:Mine", "--json", *tiny)
    assert ended.code == 0
    assert len(json.loads(ended.out)) == 2


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_an_edited_file_is_run_as_it_is_now_also_in_one_process(linbench: Callable[..., Any], tiny: list[str]) -> None:
    scores = []
    for gain in ("1.0", "0.0"):
        Path("mine.py").write_text(MINE.replace("gain=1.0", f"gain={gain}"))
        scores.append(json.loads(linbench("run", "mqar", "--model", "./mine.py:RunningMean", "--json", *tiny).out)[0])
    assert scores[0]["id"] != scores[1]["id"]
    assert scores[0]["curve"] != scores[1]["curve"]


@pytest.mark.usefixtures("undrawn")
def test_the_same_model_named_twice_is_one_cell(linbench: Callable[..., Any], tiny: list[str]) -> None:
    assert len(json.loads(linbench("run", "mqar", "--model", "deltanet,deltanet,2xdeltanet", "--json", *tiny).out)) == 1


@pytest.mark.usefixtures("undrawn")
def test_python_gives_the_same(linbench: Callable[..., Any], tiny: list[str]) -> None:
    settings = dict(pair.split("=") for pair in tiny[3::2])
    frame = package.run("mqar", "deltanet", seeds=[0, 1], settings=settings, results="results", device="cpu")
    stored = package.load("results")
    assert list(frame.accuracy) == [json.loads(path.read_text())["metrics"]["accuracy"] for path in (Path("results") / f"{i}.json" for i in frame.id)]
    assert set(stored.id) == set(frame.id)
    assert list(package.run("mqar", "deltanet", seeds=1, settings=settings, device="cpu").id) == list(frame.id[frame.seed == 1])
    assert (stored["task.kv_pairs"] == 2).all()
    assert (stored["model.heads"] == 2).all()
    assert "finished earlier" in linbench("run", "mqar", "--model", "deltanet", "--seeds", "0,1", *tiny).err


@pytest.mark.slow
def test_tables_and_figures_come_from_stored_results_alone(linbench: Callable[..., Any], tiny: list[str]) -> None:
    shown = linbench("run", "mqar", "--model", BOTH, "--seeds", "0,1", *tiny).out
    linbench("run", "mqar", "--model", BOTH, "--form", "controlled", *tiny)
    ended = linbench("table")
    assert shown.strip() in ended.out
    assert ended.out.count("### mqar, native") == ended.out.count("### mqar, controlled") == 1
    assert "parameters differ by" in ended.out
    first = linbench("table", "--save", "a"), linbench("figures", "--save", "a")
    second = linbench("table", "--save", "b"), linbench("figures", "--save", "b")
    assert {ended.code for ended in (*first, *second)} == {0}
    files = sorted(path.name for path in Path("a").iterdir())
    assert len(files) == 2 * (4 + 3 * 3), "their sizes are too much alike for figures against size"
    assert all((Path("a") / name).read_bytes() == (Path("b") / name).read_bytes() for name in files)
    lines = linbench("table", "--format", "csv").out.splitlines()
    titles = [i for i, line in enumerate(lines) if line.startswith("# ")]
    assert [lines[i] for i in titles] == ["# mqar, controlled, cpu", "# mqar, native, cpu"], "of two tables each says what it is of"
    assert all(lines[i + 1].startswith("model,accuracy,scaled,seeds,parameters") for i in titles)
    assert len(json.loads(linbench("table", "--json").out)) == 2


def test_lists_and_cards(linbench: Callable[..., Any]) -> None:
    models = linbench("list", "models")
    rows = [line.split("\t") for line in models.out.splitlines()]
    names, generations = [row[0] for row in rows], [row[1] for row in rows]
    assert list(dict.fromkeys(generations)) == [one for one in GENERATIONS if one in generations], "grouped by generation, in the order of the story"
    assert ["deltanet", "delta rule", "matrix_state"] in [row[:3] for row in rows]
    assert {"attention", "base_conv", "deltanet", "gated_deltanet", "linear_attention"} <= set(names)
    assert "mqar\tremember\tWhich value followed this key, for each of many keys?" in linbench("list", "tasks").out
    asked = [row["asks"] for row in json.loads(linbench("list", "tasks", "--json").out)["tasks"]]
    assert len([one for one, before in zip(asked, [None, *asked], strict=False) if one != before]) == len(set(asked)), "grouped by what they ask"
    assert {row["name"] for row in json.loads(linbench("list", "models", "--json").out)["models"]} >= {"attention"}
    task = linbench("show", "task", "mqar", "--set", "task.kv_pairs=2", "--set", "task.power_a=1").out
    for part in ("kv_pairs", "quick-hard", "means", "does not tell", "remember: ", "chance 0.5000", "distance (below 64)", "none of 2,048 test examples"):
        assert part in task
    card = linbench("show", "model", "gated_deltanet").out
    for part in ("2412.06464", "neg_eigval", "the controlled form sets", "conv = 4"):
        assert part in card
    assert json.loads(linbench("show", "model", "attention", "--json").out)["name"] == "attention"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "mqr", "--model", "deltanet"], "unknown task 'mqr'; did you mean 'mqar'?"),
        (["run", "mqar", "--model", "deltnet"], "unknown model 'deltnet'; did you mean 'deltanet'?"),
        (["run", "mqar", "--model", "deltanet", "--preset", "quck"], "did you mean 'quick'?"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "x"], "seeds are numbers such as 0,1,2 or 0-4, not 'x'; the largest is 9223372036854775807."),
        (["run", "mqar", "--model", "deltanet", "--seeds", "4-0"], "not '4-0'"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "²"], "not '²'"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "0-99999999999"], "seeds are at most 10000 at once, not '0-99999999999'."),
        (["run", "mqar", "--model", "deltanet", "--seeds", "18446744073709551616"], "not '18446744073709551616'; the largest is 9223372036854775807."),
        (["run", "mqar", "--model", "deltanet", "--set", "heads"], "--set takes NAME=VALUE"),
        (["run", "mqar", "--model", "deltanet", "--search", "--set", "protocol.lr=1e-3"], "protocol.lr = 1e-3: the learning rate is searched for; give one"),
        (["run", "mqar", "--model", "deltanet", "--precision", "bf16", "--set", "protocol.precision=fp32"], "both say the precision; give one of the two"),
        (["run", "mqar", "--model", "deltanet", "--set", "protocol.clip=inf"], "protocol.clip = inf: input should be a finite number"),
        (["run", "mqar", "--model", "00xdeltanet"], "is not a layer pattern"),
        (["run", "mqar", "--model", "3xdeltanet+attention", "--set", "model.layers=2"], "4, 8, ... would do"),
        (["run", "mqar", "--model", "torch.nn:MultiheadAttention"], "model.num_heads must be given"),
        (["run", "mqar", "--model", "torch.nn.functional:pi"], "unknown class in torch.nn.functional 'pi'"),
        (["run", "mqar", "--model", "deltanet", "--set", "task.seq_len=63"], "63 is odd, 64 would do"),
        (["run", "mqar", "--model", ""], "name at least one model"),
        (["show", "model", "deltnet"], "did you mean 'deltanet'?"),
        (["figures", "learning-curve"], "did you mean 'learning-curves'?"),
        (["run", "mqar", "--model", "./no.py:Mine"], "there is no file ./no.py"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(linbench: Callable[..., Any], words: list[str], sentence: str) -> None:
    ended = linbench(*words)
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""
    assert not Path("results").exists()


def test_unknown_options_and_verbs_exit_2(linbench: Callable[..., Any]) -> None:
    assert linbench("run", "mqar", "--model", "deltanet", "--sedes", "1").code == 2
    assert linbench("runn").code == 2


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_spin_briefly_unless_the_user_says_otherwise(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, given: dict[str, str], spins: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    linbench("--version")
    assert os.environ.get("GOMP_SPINCOUNT") == spins
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


@pytest.mark.slow
def test_a_search_reports_what_it_chose_and_keeps_what_it_tried(linbench: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    words = ["run", "mqar", "--model", "deltanet", "--search", "--json", *tiny]
    ended = linbench(*words)
    assert ended.code == 0
    (reported,) = json.loads(ended.out)
    search = reported["search"]
    assert reported["cell"]["protocol"]["settings"]["lr"] == search["best"]
    assert reported["cell"]["seed"] not in search["seeds"]
    assert ("lr_edge" in reported["marks"]) is search["edge"]
    stored = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert [result["purpose"] for result in stored].count("report") == 1
    assert [result["purpose"] for result in stored].count("tuning") == 2 * len(search["accuracies"])
    again = linbench(*words)
    assert json.loads(again.out) == [reported]
    assert "finished earlier" in again.err
    assert linbench("table").out.count("deltanet") == 1, "what was only tried is no row"

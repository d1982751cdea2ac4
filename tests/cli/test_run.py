"""`linbench run` as a user meets it, in one process and with tiny settings."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

import linbench as package

BOTH = "deltanet,gated_deltanet"


def measured(results: list[dict[str, Any]]) -> list[Any]:
    """All that must not depend on when and where it was run."""
    return [
        {name: value for name, value in result.items() if name not in {"seconds", "environment"}}
        for result in results
    ]


@pytest.mark.slow
def test_side_by_side_table_and_figures(
    linbench: Callable[..., Any], tiny: list[str], snapshot: SnapshotAssertion
) -> None:
    ended = linbench("run", "mqar", "--model", BOTH, "--seeds", "0,1", *tiny)
    assert ended.code == 0
    lines = ended.err.splitlines()
    assert [line.split(" ")[0] for line in lines[:4]] == ["1/4", "2/4", "3/4", "4/4"]
    assert "deltanet seed 0:" in lines[0]
    assert "accuracy 0." in lines[0]
    title, empty, header = ended.out.splitlines()[:3]
    assert (title, empty) == ("### mqar, native", "")
    assert header.startswith("| model ")
    rows = [line for line in ended.out.splitlines() if line.startswith(("| deltanet", "| gated"))]
    assert len(rows) == 2
    assert all("±" in row for row in rows)
    names = {path.suffix for path in Path("results/figures").iterdir()}
    assert names == {".png", ".svg", ".txt"}
    (form,) = re.findall(r"Native form: [^.]*\.", ended.out)
    assert form == snapshot


def test_json_is_all_there_is_on_standard_output(linbench: Callable[..., Any], tiny: list[str]) -> None:
    ended = linbench("run", "mqar", "--model", "attention", "--json", *tiny)
    (result,) = json.loads(ended.out)
    assert result["status"] == "ok"
    assert result["model"]["state"] == {
        "recurrent": 0,
        "cache": 16 * 2 * 16 * 2,
        "convolution": 0,
        "shift": 0,
        "total": 1024,
    }
    assert [point["step"] for point in result["curve"]] == [2, 4, 6, 8, 10]
    assert set(result["slices"]) == {"distance", "slot"}
    assert sum(result["slices"]["slot"]["accuracy"]["weight"]) == 16 * 2
    right, counted = (sum(result["slices"]["distance"]["accuracy"][name]) for name in ("sum", "weight"))
    assert result["metrics"]["accuracy"] == right / counted


@pytest.mark.slow
def test_test_lengths_are_tests_of_their_own(
    linbench: Callable[..., Any], tiny: list[str], snapshot: SnapshotAssertion
) -> None:
    ended = linbench("run", "mqar", "--model", "deltanet", "--test-lengths", "1x,2x", "--json", *tiny)
    (result,) = json.loads(ended.out)
    assert [test["seq_len"] for test in result["tests"]] == [16, 32]
    assert [test["settings"]["kv_pairs"] for test in result["tests"]] == [2, 2]
    assert list(Path("results/figures").glob("*-lengths.png"))
    for wrong in ("two", ""):
        ended = linbench("run", "mqar", "--model", "deltanet", "--test-lengths", wrong, *tiny)
        assert ended.code == 2
        assert f"'{wrong}'" in ended.err
        assert ended.err == snapshot(name=wrong or "empty")


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


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_an_unreadable_result_is_set_aside_and_its_cell_runs_again(
    linbench: Callable[..., Any], tiny: list[str], snapshot: SnapshotAssertion
) -> None:
    words = ("run", "mqar", "--model", "deltanet", *tiny)
    linbench(*words)
    (path,) = Path("results").glob("*.json")
    path.write_text(path.read_text()[:-30])
    with pytest.warns(UserWarning, match=f"ignored result file {path}: it is torn"):
        assert package.load("results").empty
    ended = linbench(*words)
    ignored = next(line for line in ended.err.splitlines() if "ignored" in line)
    assert f" {path}.unreadable-0: " in ignored
    assert ignored.replace(str(path), "FILE") == snapshot
    assert "finished earlier" not in ended.err
    assert len(list(Path("results").glob("*.unreadable-0"))) == 1
    assert "finished earlier" in linbench(*words).err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "model",
    [
        "gated_deltanet",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("attention", "linear_attention", "deltanet+attention[window=4]")
        ),
    ],
)
def test_the_same_command_twice_gives_the_same_bits(
    linbench: Callable[..., Any], tiny: list[str], model: str
) -> None:
    found = [
        json.loads(linbench("run", "mqar", "--model", model, "--json", "--results", folder, *tiny).out)
        for folder in ("one", "two")
    ]
    assert measured(found[0]) == measured(found[1])
    assert len(found[0][0]["curve"]) == 5


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_cells_result_does_not_depend_on_what_ran_before_it(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    alone = json.loads(
        linbench("run", "mqar", "--model", "deltanet", "--json", "--results", "one", *tiny).out
    )
    after = json.loads(
        linbench("run", "mqar", "--model", "attention,deltanet", "--json", "--results", "two", *tiny).out
    )
    assert measured(alone) == measured(after[1:])


@pytest.mark.usefixtures("undrawn")
def test_seeds_differ(linbench: Callable[..., Any], tiny: list[str]) -> None:
    first, second = json.loads(
        linbench("run", "mqar", "--model", "deltanet", "--seeds", "0-1", "--json", *tiny).out
    )
    assert first["curve"] != second["curve"]


@pytest.mark.usefixtures("undrawn")
def test_the_same_model_named_twice_is_one_cell(linbench: Callable[..., Any], tiny: list[str]) -> None:
    assert (
        len(
            json.loads(
                linbench("run", "mqar", "--model", "deltanet,deltanet,2xdeltanet", "--json", *tiny).out
            )
        )
        == 1
    )


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_python_gives_the_same(linbench: Callable[..., Any], tiny: list[str]) -> None:
    settings = dict(pair.split("=") for pair in tiny[3::2])
    frame = package.run("mqar", "deltanet", seeds=[0, 1], settings=settings, results="results", device="cpu")
    stored = package.load("results")
    assert list(frame.accuracy) == [
        json.loads(path.read_text())["metrics"]["accuracy"]
        for path in (Path("results") / f"{i}.json" for i in frame.id)
    ]
    assert set(stored.id) == set(frame.id)
    assert list(package.run("mqar", "deltanet", seeds=1, settings=settings, device="cpu").id) == list(
        frame.id[frame.seed == 1]
    )
    assert (stored["task.kv_pairs"] == 2).all()
    assert (stored["model.heads"] == 2).all()
    assert "finished earlier" in linbench("run", "mqar", "--model", "deltanet", "--seeds", "0,1", *tiny).err


@pytest.mark.slow
def test_tables_and_figures_come_from_stored_results_alone(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
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
    assert [lines[i] for i in titles] == [
        "# mqar, controlled, cpu",
        "# mqar, native, cpu",
    ], "of two tables each says what it is of"
    assert all(
        lines[i + 1].startswith("model,accuracy,accuracy_sd,scaled,learning_rate,seeds,parameters,")
        for i in titles
    )
    assert len(json.loads(linbench("table", "--json").out)) == 2


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
def test_a_search_reports_what_it_chose_and_keeps_what_it_tried(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path
) -> None:
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
    assert (
        [result["purpose"] for result in stored].count("tuning")
        == 3 * len(search["accuracies"])
        == search["runs"]
    )
    assert search["tokens"] == 640 * search["runs"]
    again = linbench(*words)
    assert json.loads(again.out) == [reported]
    assert "finished earlier" in again.err
    table, of_search = linbench("table").out.split("search for learning rates")
    assert table.count("deltanet") == of_search.count("deltanet") == 1, "what was only tried is no row"

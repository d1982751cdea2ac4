"""`linbench probe` as a user meets it, and the export of a trained model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.helpers.language_models import save_untrained

pytest.importorskip("transformers")

ASKED = ("--task", "mqar,counter", "--examples", "8", "--device", "cpu")


@pytest.mark.slow
def test_tasks_are_asked_once_and_shown_in_tables(linbench: Callable[..., Any]) -> None:
    folder = save_untrained("llama", Path("my-model"))
    ended = linbench("probe", str(folder), *ASKED)
    assert ended.code == 0
    titles = [line for line in ended.out.splitlines() if line.startswith("### ")]
    assert [("counter quick" in title, "mqar quick" in title) for title in titles] == [
        (True, False),
        (False, True),
    ]
    row = next(line for line in ended.out.splitlines() if line.startswith("| my-model"))
    assert len(list(Path("results").glob("*.json"))) == 2
    again = linbench("probe", "my-model", *ASKED)
    told = again.err.splitlines()
    assert [line for line in told if not line.startswith("drew ")] == ["mqar: stored", "counter: stored"]
    drawn = {line.removeprefix("drew ") for line in told if line.startswith("drew ")}
    assert drawn == {str(path) for path in Path("results/figures").iterdir() if path.suffix != ".txt"}
    assert next(line for line in again.out.splitlines() if line.startswith("| my-model")) == row
    assert "counter quick" in linbench("table").out
    few = linbench("probe", "my-model", "--task", "mqar", "--examples", "8", "--shots", "1", "--json")
    (result,) = json.loads(few.out)
    assert (result["probe"]["shots"], result["probe"]["answers"]) == (1, "written")
    assert linbench("report").code == 0


@pytest.mark.slow
def test_figures_show_the_model_beside_those_that_were_asked_the_same(linbench: Callable[..., Any]) -> None:
    for name in ("llama", "mamba2"):
        save_untrained(name, Path(name))
    assert linbench("probe", "llama", *ASKED).code == 0
    ended = linbench("probe", "mamba2", "--task", "mqar", *ASKED[2:])
    assert ended.code == 0
    (picture,) = (line.removeprefix("drew ") for line in ended.err.splitlines() if line.endswith(".svg"))
    assert "mqar" in picture
    text = Path(picture).read_text()
    assert [f">{name}<" in text for name in ("llama", "mamba2")] == [True, True]


@pytest.mark.slow
def test_what_is_asked_is_kept_though_its_figures_cannot_be_written(linbench: Callable[..., Any]) -> None:
    save_untrained("llama", Path("my-model"))
    Path("results").mkdir()
    Path("results/figures").write_text("")
    ended = linbench("probe", "my-model", "--task", "mqar", "--examples", "8", "--device", "cpu")
    assert ended.code == 6
    assert "| my-model" in ended.out
    assert len(list(Path("results").glob("*.json"))) == 1


@pytest.mark.slow
def test_an_exported_model_is_asked_what_it_was_trained_on(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    ran = linbench("run", "mqar", "--model", "deltanet", "--export", "mine", "--json", *tiny)
    assert ran.code == 0
    settings = [word for word in tiny if word.startswith("task.")]
    chosen = [word for setting in settings for word in ("--set", setting)]
    probed = linbench(
        "probe", "mine", "--task", "mqar", "--examples", "16", "--json", "--device", "cpu", *chosen
    )
    (trained,), (answered,) = json.loads(ran.out), json.loads(probed.out)
    assert answered["metrics"] == trained["metrics"]
    assert answered["slices"] == trained["slices"]
    assert linbench("table").out.count("### ") == 2


def test_what_export_cannot_write_is_refused(
    linbench: Callable[..., Any], tiny: list[str], snapshot: SnapshotAssertion
) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("")
    told = []
    for model, more in (
        ("deltanet,gla", ["--export", "new"]),
        ("deltanet", ["--export", "new", "--seeds", "0,1"]),
        ("deltanet", ["--export", "new", "--search"]),
        ("deltanet", ["--export", "full"]),
    ):
        ended = linbench("run", "mqar", "--model", model, *more, *tiny)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        told.append(ended.err)
    assert told == snapshot
    assert not Path("new").exists()

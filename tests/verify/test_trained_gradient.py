"""The reach of a gradient before and after training: the weights that are measured, and what is kept."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure as Sheet
from torch import nn

from linbench.common.errors import StorageError, UserError
from linbench.engine.layer_under_test import seeded
from linbench.engine.measure import training_context
from linbench.engine.progress import NoProgress
from linbench.engine.train import train
from linbench.experiments.cell import Cell
from linbench.verify import trained_gradient as module
from linbench.verify.gradient import BEFORE
from linbench.verify.gradient_panels import lines
from linbench.verify.trained_gradient import KEPT, fresh_layer, trained_gradient
from linbench.verify.trained_gradient_panels import WAYS, drawing, widths
from linbench.verify.update_rules import Row, Trials
from tests.helpers.cells import RecordingProgress, build_cells, plan, tiny_settings

DISTANCES = (0, 1, 5)
TWO = Trials(count=2)
SOON = {**tiny_settings(8), "protocol.lr": 0.1}
NEVER = {**tiny_settings(8), "protocol.lr": 1e-12}


def cells(*models: str, **settings: object) -> list[Cell]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return build_cells(*models, seeds=[0], settings=SOON | named)


def reach(cells: list[Cell], folder: Path | None = None, trials: Trials = TWO) -> list[Row]:
    rows, failed = trained_gradient(cells, NoProgress(), trials=trials, distances=DISTANCES, folder=folder)
    assert not failed
    return rows


def looped(layer: nn.Module, width: int) -> list[float]:
    """Sizes by a loop over trials and inputs, each with a gradient of its own."""
    length, layer = BEFORE + max(DISTANCES) + 1, layer.double()
    squares = dict.fromkeys(DISTANCES, 0.0)
    for trial in range(TWO.count):
        with seeded("cpu", "gradient", TWO.seed, trial):
            x, direction = torch.randn(1, length, width), torch.randn(width)
        for distance in DISTANCES:
            token = x[:, length - 1 - distance].double().requires_grad_()
            before, behind = x[:, : length - 1 - distance], x[:, length - distance :]
            y = layer(torch.cat([before, token[:, None], behind], dim=1)).y
            (y[0, -1] @ direction.double()).backward()
            assert token.grad is not None
            squares[distance] += float(token.grad.square().sum())
    return [math.log10(math.sqrt(square / TWO.count)) for square in squares.values()]


@pytest.fixture(scope="module")
def gla() -> list[Row]:
    return reach(cells("gla"))


def test_after_is_the_gradient_of_the_trained_weights_and_before_that_of_the_first(gla: list[Row]) -> None:
    (cell,) = cells("gla")
    loud = [
        replace(one, settings=one.settings.model_copy(update={"silent": False})) for one in cell.model.layers
    ]
    initial = replace(cell.model, layers=tuple(loud)).build(cell.task, seed=0)
    with training_context([cell]) as training:
        ((_, stack),) = train(training, lambda report: None)
    assert stack is not None
    trained = stack.model.mixers[0]  # type: ignore[index,union-attr]
    before, after = (lines(gla, when)[1]["gla"] for when in ("before", "after"))
    assert before == pytest.approx(looped(initial.mixers[0], 16))
    assert after == pytest.approx(looped(trained, 16))
    assert after != pytest.approx(before, abs=0.01)


def test_a_layer_that_learns_nothing_reaches_as_far_as_before() -> None:
    rows = reach(build_cells("gla[silent=false]", seeds=[0], settings=NEVER))
    assert [row["after"] for row in rows] == pytest.approx([row["before"] for row in rows], abs=1e-6)


def test_tied_layers_begin_as_others_do() -> None:
    tied, own = (fresh_layer(cells("gla", model__tied=name)[0]) for name in ("gla", "none"))
    for one, other in zip(tied.parameters(), own.parameters(), strict=True):
        assert torch.equal(one, other)


def test_rows_say_which_model_and_how_wide(gla: list[Row]) -> None:
    (cell,) = cells("gla")
    assert [row["distance"] for row in gla] == list(DISTANCES)
    assert {(row["model"], row["mixer"], row["width"]) for row in gla} == {("gla", "gla", 16)}
    assert all(0 <= row["accuracy"] <= 1 for row in gla)
    assert widths([*gla, {**gla[0], "width": 8}]) == "8 or 16"
    assert cell.model.backbone.d_model == 16


def test_what_is_kept_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reach(cells("rnn"), tmp_path)
    (file,) = (tmp_path / KEPT).iterdir()
    monkeypatch.setattr(module, "measure", lambda *args, **more: pytest.fail("trained"))
    assert reach(cells("rnn"), tmp_path) == first
    for other in (cells("rnn", protocol__lr=0.01), cells("rnn", model__d_model=8)):
        with pytest.raises(pytest.fail.Exception):
            reach(other, tmp_path)
    with pytest.raises(pytest.fail.Exception):
        reach(cells("rnn"), tmp_path, replace(TWO, seed=1))
    for torn in (file.read_bytes()[:-5], b'{"accuracy":1,"before":[1.0],"after":[1.0]}'):
        file.write_bytes(torn)
        with pytest.raises(pytest.fail.Exception):
            reach(cells("rnn"), tmp_path)


def test_a_model_that_diverges_costs_no_other(tmp_path: Path) -> None:
    progress = RecordingProgress()
    settings = {**tiny_settings(8), "protocol.lr": 1e20, "protocol.clip": "null"}
    (wild,) = build_cells("rnn", seeds=[0], settings=settings)
    both = [wild, *cells("lstm")]
    rows, failed = trained_gradient(both, progress, trials=TWO, distances=DISTANCES, folder=tmp_path)
    assert {row["model"] for row in rows} == {"lstm"}
    assert [(result["label"], result["status"]) for result in failed] == [("rnn", "diverged")]
    assert [status for _, status, _ in progress.done] == ["diverged", "ok"]
    assert len(list((tmp_path / KEPT).iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    monkeypatch.setattr(module, "measure", lambda *args, **more: pytest.fail("trained"))
    with pytest.raises(StorageError, match="choose another folder with --save"):
        reach(cells("rnn"), tmp_path / "out")


def test_other_inputs_than_tokens_are_refused() -> None:
    with pytest.raises(UserError, match="those of regression are vectors"):
        reach(plan("regression", ["rnn"], device="cpu"))


def test_a_layer_without_weights_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\n\nclass Mean(torch.nn.Module):\n    def __init__(self, d_model):\n"
        "        super().__init__()\n\n    def forward(self, x):\n        return x.cumsum(dim=1)\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError, match=r"--after needs layers that are trained; '.*Mean' has no weights"):
        reach(cells(f"{file}:Mean"))


def test_before_is_dashed_and_after_is_solid() -> None:
    rows = [
        {
            "model": name,
            "mixer": name,
            "width": 8,
            "accuracy": 0.5,
            "distance": distance,
            "before": b,
            "after": a,
        }
        for name in ("gla", "rnn")
        for distance, b, a in ((0, 0.0, 0.5), (1, -1.0, 0.25), (2, None, -2.0))
    ]
    sheet = Sheet()
    figure = drawing(rows, trials="2 draws", task="mqar", length=2, form="native")
    assert figure.draw(sheet)
    assert [axes.get_title(loc="left") for axes in sheet.axes] == [
        "gla, accuracy 0.500",
        "rnn, accuracy 0.500",
    ]
    for axes in sheet.axes:
        drawn = {
            line.is_dashed(): list(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 3
        }
        assert drawn[False] == [0.5, 0.25, -2.0]
        assert drawn[True][:2] == [0.0, -1.0]
        assert math.isnan(drawn[True][2])
    legend = sheet.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["before", "after"]
    swapped = [{**row, "before": row["after"], "after": row["before"]} for row in rows]
    assert drawing(swapped, trials="2 draws", task="mqar", length=2, form="native").about != figure.about
    assert WAYS[1] == "-"

"""The reach of a gradient before and after training: of the first layer of models trained on a task."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import TypeAdapter, ValidationError
from torch import nn

from linbench.common.errors import UserError
from linbench.common.files import check_writable, read_regular, storage_sentence, write_whole
from linbench.common.hashing import digest
from linbench.engine.measure import measure
from linbench.engine.progress import Progress
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.models.backbone import Backbone
from linbench.results.schema.cells import CellResult
from linbench.verify.gradient import DISTANCES, layers_not_silent, log_sizes
from linbench.verify.update_rules import Row, Trials

__all__ = ["Reach", "fresh_layer", "trained_gradient"]

KEPT = "gradient-after"
"""The folder, below that of the figure, in which the reach of every trained layer is kept."""

VERSION = 1
"""The version of what is kept: another one if the same weights would give other numbers."""


class Reach(NamedTuple):
    """log10 of the size of the gradient of one layer at each distance, before and after training."""

    accuracy: float
    """The accuracy of the trained model on the test split."""
    before: list[float | None]
    after: list[float | None]


_REACH = TypeAdapter(Reach)


def trained_gradient(
    cells: Sequence[Cell],
    progress: Progress,
    *,
    trials: Trials,
    distances: Sequence[int] = DISTANCES,
    folder: Path | None = None,
) -> tuple[list[Row], list[CellResult]]:
    """Train the model of each cell, and return the reach of a gradient in its first layer before and after.

    The size is that of `linbench.verify.gradient.gradient`, for one layer on several inputs: trials differ in
    inputs and directions, and these are the same before and after. Before, the layer has the initial weights
    of the cell's seed, and a last map that would start at zero starts as other maps do. Models are trained in
    this process, as `linbench run` trains them.

    Args:
        cells: of one task, each with another model.
        progress: hears of each training.
        trials: their number, a seed, and where and in which dtype gradients are computed. The width is the
            model's.
        distances: in tokens.
        folder: where the reach of every layer is kept as soon as it is known, and looked up before a model is
            trained; None keeps nothing.

    Returns: for each model that was trained and each distance a row; results of models that could not be.

    Raises UserError: as `fresh_layer`; StorageError: a reach cannot be kept.
    """
    layers = [fresh_layer(cell) for cell in cells]
    paths = [_path(cell, trials, distances, folder) for cell in cells]
    reaches = [_kept(path, len(distances)) for path in paths]
    missing = [place for place, reach in enumerate(reaches) if reach is None]
    failed: list[CellResult] = []
    progress.begin([cells[place] for place in missing])
    try:
        for place in missing:
            found = _measure(cells[place], layers[place], trials, distances, progress)
            if isinstance(found, Reach):
                reaches[place] = found
                _keep(paths[place], found)
            else:
                failed.append(found)
    finally:
        progress.end()
    rows = [
        row
        for cell, reach in zip(cells, reaches, strict=True)
        if reach is not None
        for row in _rows(cell, reach, distances)
    ]
    return rows, failed


def fresh_layer(cell: Cell) -> nn.Module:
    """Return the first layer of a cell's model with its initial weights.

    Raises UserError: the task has other inputs than tokens, the model has several kinds of layers, the layer
    has nothing to train, or the model is to be trained with several budgets.
    """
    if cell.task.io.vocab_in is None:
        raise UserError(
            f"--after needs a task whose inputs are tokens, such as mqar; those of {cell.task_entry.name} are"
            " vectors."
        )
    if cell.protocol.rungs > 1:
        raise UserError(
            f"--after trains a model once; protocol.rungs = {cell.protocol.rungs} asks for several budgets."
        )
    model = replace(cell.model, layers=layers_not_silent(cell)).build(cell.task, seed=cell.seed)
    layer = model.mixers[0]
    if not any(parameter.requires_grad for parameter in layer.parameters()):
        raise UserError(f"--after needs layers that are trained; '{cell.model.label}' has no weights.")
    return layer


def _measure(
    cell: Cell, fresh: nn.Module, trials: Trials, distances: Sequence[int], progress: Progress
) -> Reach | CellResult:
    """Train a model and return the reach of its first layer, or its result if it could not be trained."""
    trials = replace(trials, dim=cell.model.backbone.d_model)
    before = log_sizes(lambda: fresh, trials, distances)
    trained: list[Stack] = []
    (result,) = measure([cell], lambda report: progress.report([cell], report), on_trained=trained.append)
    progress.finished(cell, result, stored=False)
    if result["status"] != "ok":
        return result
    layer = cast("Backbone", trained[0].model).mixers[0]
    return Reach(result["metrics"]["accuracy"], before, log_sizes(lambda: layer, trials, distances))


def _rows(cell: Cell, reach: Reach, distances: Sequence[int]) -> list[Row]:
    of = {
        "model": cell.model.label,
        "mixer": cell.model.layers[0].entry.name,
        "width": cell.model.backbone.d_model,
        "accuracy": reach.accuracy,
    }
    return [
        of | {"distance": distance, "before": before, "after": after}
        for distance, before, after in zip(distances, reach.before, reach.after, strict=True)
    ]


def _path(cell: Cell, trials: Trials, distances: Sequence[int], folder: Path | None) -> Path | None:
    """Return the file of a layer's reach, named by all that decides it, which can be written."""
    if folder is None:
        return None
    how = [VERSION, trials.count, trials.seed, str(trials.dtype), list(distances)]
    path = folder / KEPT / f"{digest([cell.identity, how])}.json"
    with storage_sentence(path.parent, "cannot write into", "--save"):
        path.parent.mkdir(parents=True, exist_ok=True)
    check_writable(path, "cannot write", "--save")
    return path


def _keep(path: Path | None, reach: Reach) -> None:
    if path is not None:
        with storage_sentence(path, "cannot write", "--save"):
            write_whole(path, _REACH.dump_json(reach))


def _kept(path: Path | None, count: int) -> Reach | None:
    """Return the reach in a file, with `count` sizes before and after; None if none can be read."""
    if path is None:
        return None
    try:
        reach = _REACH.validate_json(read_regular(path))
    except (OSError, ValidationError):
        return None
    return reach if len(reach.before) == len(reach.after) == count else None

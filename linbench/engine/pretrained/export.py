"""Writes a trained model as a folder that `linbench probe` and transformers load."""

from pathlib import Path

from safetensors.torch import save

from linbench.common.errors import UserError
from linbench.common.files import storage_sentence, write_whole
from linbench.engine.measure import measure
from linbench.engine.pretrained.folder import MAPPING, Mapping, require_transformers
from linbench.engine.pretrained.vocabulary import refuse_task
from linbench.engine.progress import Progress
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.models.backbone import Backbone
from linbench.results.schema.cells import CellResult

_OPTION = "--export"


def train_and_export(cell: Cell, folder: Path, progress: Progress) -> CellResult:
    """Train a cell in this process, write its model into a folder, and return its result.

    Nothing is written for a run that diverged or failed.

    Args:
        cell: a cell that `refuse_export` allows.
        folder: made if it is not there.
        progress: a listener.

    Raises StorageError: the folder cannot be written.
    """
    trained: list[Stack] = []
    with storage_sentence(folder, "cannot export into", _OPTION):
        folder.mkdir(parents=True, exist_ok=True)
    progress.begin([cell])
    try:
        (result,) = measure([cell], lambda report: progress.report([cell], report), on_trained=trained.append)
        progress.finished(cell, result, stored=False)
    finally:
        progress.end()
    if trained and result["status"] == "ok":
        model = trained[0].model
        assert isinstance(model, Backbone)
        export(cell, model, folder)
    return result


def export(cell: Cell, model: Backbone, folder: Path) -> None:
    """Write configuration, weights and tokens of a cell's model into a folder.

    Raises StorageError: they cannot be written.
    """
    from linbench.engine.pretrained.exported import WEIGHTS, LinbenchConfig, stored_tensors

    io = cell.task.io
    assert io.vocab_in is not None
    assert io.vocab_out is not None
    first = 0 if cell.task.one_vocabulary else io.vocab_in
    answers = list(range(first, first + io.vocab_out))
    config = LinbenchConfig(
        spec=cell.model.identity(),
        seed=cell.seed,
        vocab_in=io.vocab_in,
        vocab_out=io.vocab_out,
        vocab_size=first + io.vocab_out,
        hidden_size=cell.model.backbone.d_model,
        precision=cell.protocol.precision,
        architectures=["LinbenchForCausalLM"],
    )
    mapping = Mapping(task=cell.task.name, inputs=list(range(io.vocab_in)), answers=answers)
    with storage_sentence(folder, "cannot export into", _OPTION):
        tensors = {name: x.detach().clone() for name, x in stored_tensors(model).items()}
        write_whole(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))
        config.save_pretrained(folder)
        write_whole(folder / MAPPING, mapping.model_dump_json().encode() + b"\n")


def refuse_export(cell: Cell, folder: Path) -> None:
    """Check that the model of a cell can be exported into a folder.

    Raises UserError: transformers is not installed, a language model cannot be asked the task, a layer is not
    linbench's, the model is trained with several budgets, or the folder holds something else.
    """
    require_transformers()
    refuse_task(cell.task)
    for layer in cell.model.layers:
        if not layer.entry.shipped:
            raise UserError(
                f"{_OPTION} takes models of linbench's own layers, which can be built again by name;"
                f" {layer.entry.name} is not one."
            )
    if cell.protocol.rungs > 1:
        raise UserError(
            f"{_OPTION} trains a model once; protocol.rungs = {cell.protocol.rungs} asks for several budgets."
        )
    if folder.exists() and (
        not folder.is_dir() or (any(folder.iterdir()) and not (folder / MAPPING).is_file())
    ):
        raise UserError(f"{folder} holds something else than an exported model; name another with {_OPTION}.")

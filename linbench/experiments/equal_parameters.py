"""Models whose state is undeclared, made as large as another by their number of parameters."""

from collections.abc import Sequence
from dataclasses import replace

from linbench.common.errors import UserError
from linbench.experiments.cell import Cell
from linbench.experiments.model_spec import ModelSpec
from linbench.experiments.sizing import TOLERANCE, channel_width_for_parameters
from linbench.experiments.suite import SuiteBlock, SuiteModel


def match_parameters(blocks: Sequence[SuiteBlock]) -> list[SuiteBlock]:
    """Return blocks in which models of undeclared state have as many parameters as one that declares its own.

    That one is the first of its block that declares its state, or else the first. The width of the channel
    mixer is chosen. A model within `TOLERANCE` stays as it is, and so does one whose width is given, or that
    no width makes equal.
    """
    return [block._replace(rows=_matched(block)) for block in blocks]


def _matched(block: SuiteBlock) -> list[tuple[SuiteModel, list[Cell]]]:
    undeclared = [_is_undeclared(cells[0]) for _, cells in block.rows]
    if not any(undeclared):
        return block.rows
    _, cells = block.rows[undeclared.index(False) if False in undeclared else 0]
    asked = _parameters(cells[0])
    return [
        (model, _with_parameters(cells, asked) if alone else cells)
        for (model, cells), alone in zip(block.rows, undeclared, strict=True)
    ]


def _is_undeclared(cell: Cell) -> bool:
    """Return whether a layer from elsewhere declares no state. A layer that cannot be built tells later."""
    if all(layer.entry.shipped for layer in cell.model.layers):
        return False
    try:
        return cell.model.sketch_or_build(cell.task).state_size(cell.task.seq_len) is None
    except (Exception, SystemExit):
        return False


def _with_parameters(cells: Sequence[Cell], asked: int) -> list[Cell]:
    """Return cells of one model with this number of parameters; as they are if no width gives it."""
    first, model = cells[0], cells[0].model
    if model.backbone.channel_width is not None:
        return [*cells]
    if abs(_parameters(first) - asked) <= TOLERANCE * asked:
        return [*cells]

    def make(width: int) -> ModelSpec:
        return replace(model, backbone=model.backbone.model_copy(update={"channel_width": width}))

    try:
        sized = make(channel_width_for_parameters(make, first.task, asked))
    except UserError:  # the table tells that sizes differ
        return [*cells]
    return [replace(cell, model=sized) for cell in cells]


def _parameters(cell: Cell) -> int:
    return cell.model.sketch_or_build(cell.task).parameter_count()

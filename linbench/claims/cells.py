"""From measures to the cells that they are of."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from linbench.claims.claim import Claim
from linbench.common.errors import UserError
from linbench.experiments.cell import Cell
from linbench.experiments.labels import all_settings
from linbench.experiments.learning_rates import SearchSettings
from linbench.experiments.suite import Suite, expand


class Part(NamedTuple):
    """Cells that are run alike."""

    cells: tuple[Cell, ...]
    search: SearchSettings | None


def parts(claim: Claim, *, device: str = "cpu", longer: int = 1) -> list[Part]:
    """What decides a claim, as cells on a device, trained so many times as long as is written; nothing for
    one that needs none."""
    by_grid: dict[str, dict[str, Cell]] = {}
    for name in claim.trained:
        by_grid.setdefault(claim.measures[name].cells, {}).update(
            {cell.id: cell for cell in of_measure(claim, name, device=device, longer=longer)}
        )
    return [Part(tuple(cells.values()), claim.grids[grid].suite.search) for grid, cells in by_grid.items()]


def of_measure(claim: Claim, name: str, *, device: str = "cpu", longer: int = 1) -> list[Cell]:
    """The cells of a measure in the order of their seeds, trained so many times as long. Raises UserError:
    none are meant, or more than one for a seed that neither `along` nor `across` tells apart."""
    measure = claim.measures[name]
    found = [
        cell
        for cell in _all(claim.grids[measure.cells].suite, device)
        if cell.model.label == measure.model
        and all(
            str(all_settings(cell).get(setting)) == str(wanted) for setting, wanted in measure.where.items()
        )
    ]
    for seed, cells in groupby(sorted(found, key=lambda cell: cell.seed), key=lambda cell: cell.seed):
        places = [
            cell.task_entry.name if measure.across else str(all_settings(cell).get(measure.along))
            for cell in cells
        ]
        if len(set(places)) < len(places):
            raise UserError(
                f"{claim.id}.{name}: of seed {seed} {len(places)} cells are meant; `where` must say which."
            )
    if not found:
        raise UserError(
            f"{claim.id}.{name}: no cell of {measure.cells} is of {measure.model} with {dict(measure.where)}."
        )
    return [_trained(cell, longer) for cell in sorted(found, key=lambda cell: cell.seed)]


def _trained(cell: Cell, longer: int) -> Cell:
    protocol = cell.protocol
    epochs = None if protocol.epochs is None else longer * protocol.epochs
    return replace(
        cell, protocol=protocol.model_copy(update={"tokens": longer * protocol.tokens, "epochs": epochs})
    )


_CELLS: dict[tuple[str, str], Sequence[Cell]] = {}


def _all(suite: Suite, device: str) -> Sequence[Cell]:
    """Every cell of a suite, worked out once: to size models takes a while, and several measures share
    them."""
    key = (suite.model_dump_json(), device)
    if key not in _CELLS:
        _CELLS[key] = expand(suite, device=device).cells
    return _CELLS[key]

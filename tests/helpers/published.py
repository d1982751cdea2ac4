"""A small published table, and scores of its cells."""

from collections.abc import Callable, Mapping
from typing import Any

from linbench.experiments.cell import Cell
from linbench.reproduction.schema import PublishedTable
from linbench.reproduction.table import Reproduction
from linbench.results.schema.cells import CellResult
from tests.helpers.claims import a_result

SMALL: dict[str, Any] = {
    "title": "What two models recall",
    "source": "Nobody 2026, arXiv:2601.00000, table 1",
    "trust": "text",
    "tolerance": 3,
    "select": "best seed",
    "seeds": "0-1",
    "set": {
        "task.vocab_size": 16,
        "model.d_model": 16,
        "protocol.batch_size": 4,
        "protocol.tokens": 640,
        "protocol.evaluations": 5,
        "protocol.validation_examples": 8,
        "protocol.test_examples": 16,
    },
    "grid": {"protocol.lr": [0.001, 0.01]},
    "columns": {"short": {"task": "mqar", "set": {"task.seq_len": 16, "task.kv_pairs": 2}}},
    "rows": {"deltanet": [90], "other": {"needs": "other", "values": [50]}},
    "switches": {"no convolution": {"expects": "down", "set": {"model.conv": 0}}},
}


def small_table(**changes: Any) -> Reproduction:
    """Return the small table with some of its values changed."""
    return Reproduction("R1", PublishedTable.parse({**SMALL, **changes}, where="R1"))


def scored(scores: Mapping[tuple[float, int], float], **more: Any) -> Callable[[Cell], CellResult | None]:
    """Return a look-up of results by learning rate and seed, with these accuracies; `more` changes all."""

    def find(cell: Cell) -> CellResult | None:
        score = scores.get((cell.protocol.lr, cell.seed))
        return None if score is None else a_result(cell, score, "cpu", **more)

    return find

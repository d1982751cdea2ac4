"""Builders of groups of tiny cells and of their results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from linbench.engine.measure import measure
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from tests.helpers.cells import build_cells, tiny_settings

TINY = tiny_settings(20, batch_size=8, examples=64) | {"model.heads": 1}
FEW = {"protocol.tokens": 5 * 8 * 16}
"""One step for each evaluation."""


def cells(
    model: str = "deltanet", seeds: Sequence[int] = (0, 1, 2), device: str = "cpu", **settings: Any
) -> list[Cell]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return build_cells(model, seeds=seeds, settings=TINY | named, device=device)


def module_cells(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, seeds: Sequence[int], **settings: Any
) -> list[Cell]:
    """Return cells of a user's module, whose class is Mine."""
    monkeypatch.chdir(folder)
    Path("mine.py").write_text(module)
    around = {name: value for name, value in TINY.items() if name != "model.heads"}
    return build_cells("./mine.py:Mine", seeds=seeds, settings=around | settings)


def results(group: Sequence[Cell]) -> list[Result]:
    found = {result["id"]: result for result in measure(group, lambda report: None)}
    assert len(found) == len(group)
    return [found[cell.id] for cell in group]

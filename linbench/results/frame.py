"""Data frames of stored results."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from linbench.common.hashing import canonical
from linbench.results.record import model_size_of
from linbench.results.schema.cells import CellResult
from linbench.results.scores import above_chance, accuracy, further_metrics
from linbench.results.undertrained import judged

if TYPE_CHECKING:
    import pandas as pd


def frame(results: Iterable[CellResult]) -> "pd.DataFrame":
    """Return a data frame with a row for each result and a column for each setting."""
    import pandas as pd  # it takes long to load, and training does not need it

    return pd.DataFrame([_row(result) for result in judged(results)])


def _row(result: CellResult) -> dict[str, Any]:
    cell, score = result["cell"], accuracy(result)
    further = further_metrics(result)
    metrics = {name: further.get(name) for name in ("nll", *further)}
    return {
        "task": cell["task"]["name"],
        "preset": result["preset"],
        "model": result["label"],
        "form": cell["model"]["form"],
        "seed": cell["seed"],
        "purpose": result["purpose"],
        "status": result["status"],
        "reason": result["reason"],
        "accuracy": score,
        "scaled": None if score is None else above_chance(score, result["chance"]),
        **metrics,
        "chance": result["chance"],
        "marks": ",".join(result["marks"]),
        **model_size_of(result),
        "seconds": result["seconds"],
        "device": cell["device"],
        **_settings(result),
        "commit": result["environment"]["commit"],
        "id": result["id"],
    }


def _settings(result: CellResult) -> dict[str, Any]:
    """Return the settings of a cell by column; those of its layers only if all layers are the same."""
    cell = result["cell"]
    layers = cell["model"]["layers"]
    columns = {f"task.{name}": value for name, value in cell["task"]["settings"].items()}
    columns |= {f"model.{name}": value for name, value in cell["model"]["backbone"]["settings"].items()}
    if len({canonical(layer) for layer in layers}) == 1:
        columns |= {f"model.{name}": value for name, value in layers[0]["settings"].items()}
    return columns | {f"protocol.{name}": value for name, value in cell["protocol"]["settings"].items()}

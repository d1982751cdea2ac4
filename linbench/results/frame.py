"""Data frames of stored results."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from linbench.common.hashing import canonical
from linbench.results.record import model_size_of
from linbench.results.schema.cells import CellResult
from linbench.results.scores import above_chance, accuracy

if TYPE_CHECKING:
    import pandas as pd


def frame(results: Iterable[CellResult]) -> "pd.DataFrame":
    """Return a data frame with a row for each result and a column for each setting."""
    import pandas as pd  # it takes long to load, and training does not need it

    return pd.DataFrame([_row(result) for result in results])


def _row(result: CellResult) -> dict[str, Any]:
    cell = result["cell"]
    layers = cell["model"]["layers"]
    return {
        "task": cell["task"]["name"],
        "preset": result["preset"],
        "model": result["label"],
        "form": cell["model"]["form"],
        "seed": cell["seed"],
        "purpose": result["purpose"],
        "status": result["status"],
        "reason": result["reason"],
        "accuracy": accuracy(result),
        "scaled": None if (found := accuracy(result)) is None else above_chance(found, result["chance"]),
        **{name: result["metrics"].get(name) for name in ("nll", *result["metrics"]) if name != "accuracy"},
        "chance": result["chance"],
        "marks": ",".join(result["marks"]),
        **model_size_of(result),
        "seconds": result["seconds"],
        "device": cell["device"],
        **{f"task.{name}": value for name, value in cell["task"]["settings"].items()},
        **{f"model.{name}": value for name, value in cell["model"]["backbone"]["settings"].items()},
        **{
            f"model.{name}": value
            for name, value in (
                layers[0]["settings"].items() if len({canonical(x) for x in layers}) == 1 else ()
            )
        },
        **{f"protocol.{name}": value for name, value in cell["protocol"]["settings"].items()},
        "commit": result["environment"]["commit"],
        "id": result["id"],
    }

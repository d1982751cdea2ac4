"""The key of a result: results with the same key may stand in one comparison."""

from collections.abc import Collection
from typing import Any

from linbench.common.hashing import canonical, digest
from linbench.common.settings import without
from linbench.models.blocks.heads import CONTROLLED
from linbench.results.schema.cells import CellResult, Model


def comparable_key(result: CellResult, *, ladder: bool, but: Collection[str] = ()) -> str:
    """Return a digest of all in which results of one comparison agree.

    Args:
        result: a result.
        ladder: whether the result stands for a ladder, with whatever budget that has reached.
        but: further settings of task and protocol, by bare names, in which they may differ.
    """
    cell = result["cell"]
    differing = {"lr", *but, *(("doublings",) if ladder else ())}
    protocol = without(cell["protocol"]["settings"], differing)
    kept: dict[str, Any] = {
        "task": {**cell["task"], "settings": without(cell["task"]["settings"], but)},
        "form": cell["model"]["form"],
        "protocol": [cell["protocol"]["version"], protocol],
        **({"ladder": True} if ladder else {}),
    }
    if kept["form"] == "controlled":
        kept["surroundings"] = _surroundings(cell["model"])
    return digest({**kept, "device": cell["device"], "schema": cell["schema"]})


def _surroundings(model: Model) -> list[str]:
    """Return the settings that the controlled form promises to be the same for all models.

    A layer that lacks one of these settings cannot differ in it, so it counts as having the promised value.
    """
    backbone = without(model["backbone"]["settings"], {"d_model", "layers", "loops", "tied", "channel_width"})
    layers = (
        {name: layer["settings"].get(name, own) for name, own in CONTROLLED.items()}
        for layer in model["layers"]
    )
    return sorted({canonical({**backbone, **layer}) for layer in layers})

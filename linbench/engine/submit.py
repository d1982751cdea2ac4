"""Submissions: the suite that a layer is placed by, what that took other models, and all its results."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from linbench.common.hashing import canonical
from linbench.common.settings import without
from linbench.engine.compare import ComparisonPlan
from linbench.experiments.device import pick_device
from linbench.experiments.registry import registry
from linbench.experiments.system import parse_layers
from linbench.results.schema.cells import CellResult

ON_GPU, ON_CPU = "leaderboard", "leaderboard-quick"
"""The suites that layers are placed by."""


VARIED = {"lr", "weight_decay", "rungs", "doublings"}
"""The settings of training that searches and ladders vary."""


class Effort(NamedTuple):
    """The effort that a model took in all tasks of a suite, searches and rungs among it.

    Attributes:
        tokens: tokens trained on.
        seconds: seconds of a device, shared equally among the models of a stack.
    """

    tokens: int
    seconds: float


def suite_for(device: str) -> str:
    """Return the suite that a layer is placed by on a device, as `--device` names it. Raises UserError."""
    return ON_CPU if pick_device(device) == "cpu" else ON_GPU


def sources(layer: str) -> dict[str, dict[str, str]]:
    """Return the modules of each layer that is a user's, by their names and the layer's.

    A layer with a module that is not in UTF-8 has none.
    """
    found: dict[str, dict[str, str]] = {}
    for term in parse_layers(layer):
        entry = registry("model").find(term.name)
        files = entry.plugin.files if entry.plugin else {}
        with suppress(UnicodeDecodeError):
            texts = {name: file.content.decode() for name, file in sorted(files.items()) if file.content}
            found |= {entry.name: texts} if texts else {}
    return found


class Measured:
    """Results by what was asked: all but the seed, the learning rate and the rung, which a search varies."""

    def __init__(self) -> None:
        """Begin without results."""
        self._by_question: dict[str, dict[str, CellResult]] = {}

    def add(self, results: Iterable[CellResult]) -> None:
        """Take up results; of several of one id the first counts."""
        for result in results:
            self._by_question.setdefault(_question(result["cell"]), {}).setdefault(result["id"], result)

    def of(self, identities: Iterable[Mapping[str, object]]) -> list[CellResult]:
        """Return the results of what some cells ask, each once, in the order of their ids."""
        asked = set(map(_question, identities))
        found: dict[str, CellResult] = {}
        for question in asked:
            found |= self._by_question.get(question, {})
        return [result for _, result in sorted(found.items())]


def efforts(plan: ComparisonPlan, layer: str, stored: Measured) -> list[Effort]:
    """Return what each of the other models took that has been asked all tasks that the layer is asked."""
    cells: dict[str, list[dict[str, Any]]] = {}
    answered: dict[str, int] = {}
    for block in plan.blocks:
        for part, own in block.rows:
            cells.setdefault(part.model, []).extend(cell.identity for cell in own)
            known = any(cell.id in plan.known for cell in own)
            answered[part.model] = answered.get(part.model, 0) + known
    whole = [model for model, tasks in answered.items() if tasks == len(plan.blocks) and model != layer]
    return [_effort(stored.of(cells[model])) for model in whole]


def _effort(results: Sequence[CellResult]) -> Effort:
    tokens = sum(result["curve"][-1]["tokens"] for result in results if result["curve"])
    return Effort(tokens, sum(result["seconds"] / result["stack"]["size"] for result in results))


def _question(cell: Mapping[str, Any]) -> str:
    settings = without(cell["protocol"]["settings"], VARIED)
    return canonical({**{name: cell[name] for name in ("task", "model", "device")}, "protocol": settings})

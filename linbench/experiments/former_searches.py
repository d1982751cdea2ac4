"""Rules by which learning rates were chosen in former days, as `experiments/protocols.yaml` lists them."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from linbench.experiments.learning_rates import SearchSettings, default_search
from linbench.experiments.protocol import former_searches


class Former(NamedTuple):
    """A rule of former days: the mark of results that were chosen by it, what that says, and the settings of
    a search that were others."""

    mark: str
    says: str
    settings: Mapping[str, Any]

    def instead_of(self, asked: SearchSettings) -> SearchSettings | None:
        """Return the search that this rule would have made of the one that is asked for; None where that asks
        for another than today's default."""
        today = default_search()
        if any(getattr(asked, name) != getattr(today, name) for name in self.settings):
            return None
        return asked.model_copy(update=dict(self.settings))


@cache
def formers() -> tuple[Former, ...]:
    """Return the rules of former days, those that are nearest to today's first."""
    rules = []
    for entry in former_searches():
        others = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in entry.items()
            if name not in ("mark", "says")
        }
        rules.append(Former(entry["mark"], entry["says"], others))
    return tuple(rules)

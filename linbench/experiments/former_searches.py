"""Earlier rules for choosing learning rates, which `experiments/protocols.yaml` lists."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from linbench.experiments.learning_rates import SearchSettings, default_search
from linbench.experiments.protocol import former_searches


class FormerSearch(NamedTuple):
    """An earlier rule for choosing learning rates.

    mark: the mark of results whose learning rate the rule chose. says: what the mark means, for readers.
    settings: the settings of a search that differed.
    """

    mark: str
    says: str
    settings: Mapping[str, Any]

    def instead_of(self, search: SearchSettings) -> SearchSettings | None:
        """Return the search under this rule; None if the search that is asked for is not today's default."""
        today = default_search()
        if any(getattr(search, name) != getattr(today, name) for name in self.settings):
            return None
        return search.model_copy(update=dict(self.settings))


def describe_former_marks(marks: Collection[str]) -> dict[str, str]:
    """Return what those of some marks mean that stand for former rules, by mark."""
    return {rule.mark: rule.says for rule in former_rules() if rule.mark in marks}


@cache
def former_rules() -> tuple[FormerSearch, ...]:
    """Return the earlier rules, the most recent first; rules that differ in seeds may share a mark."""
    rules = []
    for entry in former_searches():
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in entry.items()
            if name not in ("mark", "says")
        }
        rules.append(FormerSearch(entry["mark"], entry["says"], settings))
    return tuple(rules)

"""The place of one model among all others that were asked the same."""

from collections.abc import Sequence
from typing import NamedTuple

from linbench.results.capacity import Ranks
from linbench.results.comparison import Comparison, Row
from linbench.results.profile import Facet, facets, plain_accuracy
from linbench.results.ranks import ranks_of


class Placing(NamedTuple):
    """The place of a model in one quantity.

    Attributes:
        facet: the quantity, of all models that have it.
        label: the model.
        marks: the marks of its results, with the number of seeds that have each.
    """

    facet: Facet
    label: str
    marks: Sequence[str]

    @property
    def ranks(self) -> Ranks:
        """The ranks that intervals leave open."""
        found = self.facet.ranks(self.label)
        assert found is not None
        return found

    @property
    def of(self) -> int:
        """The number of models that have the quantity."""
        return len(self.facet.estimates)


class Overall(NamedTuple):
    """The place of a model by its mean rank over tasks.

    Attributes:
        place: 1 for the best.
        of: the number of models that have been asked all tasks.
        mean: its mean rank.
        difference: the critical difference of two mean ranks.
        tasks: the number of tasks.
    """

    place: int
    of: int
    mean: float
    difference: float
    tasks: int


def placings(comparisons: Sequence[Comparison], label: str) -> list[Placing]:
    """Return the places of a model in what each comparison asks, or in accuracy if it asks nothing special.

    A comparison of the model alone has none.
    """
    found = []
    for comparison, row in _with(comparisons, label):
        asked = [facet for facet in facets([comparison], []) if label in facet.estimates]
        plain = plain_accuracy(comparison)
        for facet in asked or ([plain] if plain and label in plain.estimates else []):
            if len(facet.estimates) > 1:
                found.append(Placing(facet, label, row.marks))
    return found


def overall(comparisons: Sequence[Comparison], label: str) -> Overall | None:
    """Return the place of a model over all tasks; None if it or too few others have been asked them all."""
    ranks = ranks_of([comparison for comparison, _ in _with(comparisons, label)])
    if ranks is None or label not in ranks.mean:
        return None
    mean = ranks.mean[label]
    better = sum(other < mean for other in ranks.mean.values())
    return Overall(1 + better, len(ranks.mean), mean, ranks.difference, len(ranks.by_task))


def _with(comparisons: Sequence[Comparison], label: str) -> list[tuple[Comparison, Row]]:
    """Return the comparisons that have a model, each with its first row."""
    found = []
    for comparison in comparisons:
        own = [row for row in comparison.rows if row.results[0]["label"] == label]
        found += [(comparison, row) for row in own[:1]]
    return found

"""Findings: all that stored results say, each part worked out once, where it is first asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from linbench.claims.claim import Claim, claims
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import Verdict, verdict
from linbench.common.errors import UserError
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.registry import Entry, shipped
from linbench.experiments.system import parse_layers
from linbench.models.base import GENERATIONS
from linbench.report.data import ReportData
from linbench.reproduction.ran import Ran, most, ran
from linbench.reproduction.stored import Stored as StoredCells
from linbench.reproduction.table import reproductions
from linbench.results.comparison import Comparison
from linbench.results.profile import Facet, facets_by_quantity
from linbench.results.speeds import Speeds, speeds
from linbench.results.submission import Submission, is_marked


@dataclass(frozen=True, eq=False)
class Findings:
    """All that stored results say of variants, tasks, claims and published tables.

    Attributes:
        stored: the results.
    """

    stored: Stored

    @cached_property
    def data(self) -> ReportData:
        """The results of all folders together, and those of submissions, which have labels of their own."""
        submitted = [result for store in self.submissions for result in store.all()]
        return ReportData([*self.stored.results.values(), *submitted], list(self.stored.speeds.values()))

    @cached_property
    def folders(self) -> list[ReportData]:
        """The results of each folder: an experiment, whose models were all asked the same."""
        return [ReportData.from_kinds(kinds) for kinds in self.stored.by_folder.values()]

    @cached_property
    def submissions(self) -> list[Submission]:
        """The submissions, but for damaged ones, by the names of their files."""
        found = [store for store in self.stored.submissions if store.about]
        return sorted(found, key=lambda store: store.folder.name)

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """The trained models, put together where they may stand side by side."""
        return self.data.comparisons

    @cached_property
    def speeds(self) -> list[Speeds]:
        """The timings of layers, put together where they may stand side by side."""
        return speeds(self.data.speeds)

    @cached_property
    def facets(self) -> list[Facet]:
        """The quantities that variants are ranked by, each in all comparisons of several variants.

        That which tells most comes first; at one budget there is no other.
        """
        found = []
        for first, *others in facets_by_quantity(self.comparisons, self.speeds):
            more = [one for one in others if one.comparison and one.comparison.until_learned]
            found += [first, *(one for one in more if len(one.estimates) > 1)]
        return found

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each claim."""
        return [verdict(claim, self.stored) for claim in claims().values()]

    @cached_property
    def tables(self) -> list[Ran]:
        """Each published table, on the kind of device that ran most of it."""
        stored = StoredCells(self.stored.stores)
        return [most(ran(one, stored, "cpu")) for one in reproductions().values()]


def variants_in(claim: Claim) -> list[str]:
    """Return the variants that measures of a claim are of, in the order of `variants`."""
    models = {measure.model for measure in claim.measures.values() if measure.model}
    names = {layer.name for model in models for layer in parse_layers(model)}
    return [name for name in variants() if name in names]


@cache
def variants() -> Mapping[str, Entry]:
    """Return the variants that come with linbench, by generation and name."""
    entries = shipped("model").entries
    order = sorted(entries, key=lambda name: (GENERATIONS.index(entries[name].cls.generation), name))
    return {name: entries[name] for name in order}


@cache
def tasks() -> Mapping[str, Entry]:
    """Return the tasks that come with linbench."""
    return shipped("task").entries


@cache
def variant_of(label: str) -> str:
    """Return the name of the variant that the label of a result speaks of; empty for none or several."""
    try:
        layers = {term.name for term in parse_pattern(label)}
    except UserError:
        return ""
    name = layers.pop() if len(layers) == 1 else ""
    return name if name in variants() else ""


SUBMISSIONS = "submissions.md"
"""The page of submissions."""


def page_of(label: str) -> str:
    """Return the path of the page that says more of the label of a result; empty if there is none."""
    if is_marked(label):
        return SUBMISSIONS
    name = variant_of(label)
    return f"variants/{name}.md" if name else ""

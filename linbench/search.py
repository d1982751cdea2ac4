"""The learning rate of every model by one rule: the same grid for all, chosen on tuning seeds by validation, reported on others."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from pydantic import Field, model_validator

from linbench.cell import Cell, Purpose, digest
from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.protocol import suite_block
from linbench.results import validation_accuracy
from linbench.runner import Executor, Progress, here, run_cells
from linbench.store import Result, Store

EDGE = "lr_edge"
"""The mark of a result whose learning rate lies on the edge of all that were tried: it takes part in no verdict."""


class SearchSettings(Settings):
    """Defaults stand in `suites/protocol.yaml`."""

    lowest: int = Field(description="the grid's first rate, as a number of half decades: -8 is 1e-4")
    rates: int = Field(ge=5, description="rates on the grid, half a decade apart")
    extensions: int = Field(ge=0, description="rates added at most where the best lies on the edge")
    seeds: tuple[int, ...] = Field(min_length=1, description="tuning seeds; none of them is reported")

    @model_validator(mode="after")
    def _distinct(self) -> "SearchSettings":
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("tuning seeds must differ")
        return self

    @property
    def grid(self) -> list[int]:
        """Half decades."""
        return list(range(self.lowest, self.lowest + self.rates))


def default_search() -> SearchSettings:
    """As it stands in the suite."""
    return SearchSettings.parse(suite_block("search"), where="search")


def learning_rate(half_decades: int) -> float:
    """10^(n/2) to three digits: 0.001, 0.00316, 0.01, ..."""
    return float(f"{10 ** (half_decades / 2):.3g}")


@dataclass
class Search:
    """Of one model, whatever the seed: the mean validation accuracy on the tuning seeds for every half decade tried."""

    cell: Cell
    settings: SearchSettings
    tried: dict[int, float] = field(default_factory=dict)

    @property
    def best(self) -> int:
        """The half decade with the highest accuracy; of equals, the one in their middle."""
        highest = max(self.tried.values())
        equals = sorted(n for n, accuracy in self.tried.items() if accuracy == highest)
        return equals[len(equals) // 2]

    @property
    def on_edge(self) -> bool:
        """Whether the best is the first or last of those tried."""
        return self.best in (min(self.tried), max(self.tried))

    @property
    def next(self) -> list[int]:
        """What to try now: the grid, then one rate more beyond the edge that the best lies on, and so on; nothing when done."""
        if not self.tried:
            return self.settings.grid
        if not self.on_edge or len(self.tried) >= self.settings.rates + self.settings.extensions:
            return []
        return [self.best - 1 if self.best == min(self.tried) else self.best + 1]

    def at(self, half_decades: int, seeds: Sequence[int], purpose: Purpose) -> list[Cell]:
        """The model's cells at a learning rate."""
        protocol = self.cell.protocol.model_copy(update={"lr": learning_rate(half_decades)})
        return [replace(self.cell, protocol=protocol, seed=seed, purpose=purpose) for seed in seeds]

    def summary(self) -> dict[str, Any]:
        """For the results that are reported."""
        accuracies = [[learning_rate(n), self.tried[n]] for n in sorted(self.tried)]
        return {"accuracies": accuracies, "seeds": list(self.settings.seeds), "best": learning_rate(self.best), "edge": self.on_edge}


def run_searched(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress,
    *,
    settings: SearchSettings | None = None,
    executor: Executor = here,
    again: bool = False,
    retry: bool = True,
    stack: int | None = None,
) -> list[Result]:
    """The results of `cells`, each at the learning rate that its model's search finds, whatever rate the cell has.

    All models are searched side by side, so that what can be stacked is. The reported results say what was tried, and are marked `lr_edge`
    where the best rate is the first or last of all tried.

    Raises UserError: a seed to be reported is a tuning seed. StorageError: results cannot be kept.
    """
    settings = settings or default_search()
    if tuning := sorted({cell.seed for cell in cells} & set(settings.seeds)):
        raise UserError(f"seed {tuning[0]} is a tuning seed ({', '.join(map(str, settings.seeds))}), which chooses the learning rate; report others.")
    runs = partial(run_cells, executor=executor, again=again, retry=retry, stack=stack)
    searches = {_model(cell): Search(cell, settings) for cell in cells}
    while wanted := [(search, n) for search in searches.values() for n in search.next]:
        tuned = {(id(search), n): search.at(n, settings.seeds, "tuning") for search, n in wanted}
        run = {result["id"]: result for result in runs([cell for these in tuned.values() for cell in these], store, progress)}
        for search, n in wanted:
            search.tried[n] = fmean(validation_accuracy(run[cell.id]) for cell in tuned[id(search), n])
    cells = list({cell.id: cell for cell in cells}.values())
    of = [searches[_model(cell)] for cell in cells]
    reported = [search.at(search.best, [cell.seed], "report")[0] for search, cell in zip(of, cells, strict=True)]
    found = {result["id"]: result for result in runs(reported, store, progress)}
    return [_told(found[cell.id], search, store) for search, cell in zip(of, reported, strict=True)]


def _model(cell: Cell) -> str:
    """What a search is of: everything but the seed and the learning rate."""
    settings = cell.identity["protocol"]["settings"]
    return digest({**cell.identity, "seed": None, "protocol": {**settings, "lr": None}, "label": cell.model.label})


def _told(result: Result, search: Search, store: Store) -> Result:
    """The result with what was tried, in the store too."""
    marks = [mark for mark in result["marks"] if mark != EDGE] + ([EDGE] if search.on_edge else [])
    told = {**result, "marks": marks, "search": search.summary()}
    if told != result:
        store.put(told)
    return told

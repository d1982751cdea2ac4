"""The runs and timings that would decide a claim: how many are missing, and what they may cost."""

from collections.abc import Iterator
from typing import NamedTuple

from linbench.claims.claim import Claim
from linbench.claims.measure import Work
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import Verdict
from linbench.engine.cost import estimate_seconds, fit_cost_model, total_seconds
from linbench.engine.former import joining, settled_by_former_rules
from linbench.engine.groups import groups
from linbench.engine.lr_search import pending_cells
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class


class RemainingWork(NamedTuple):
    """The runs and timings of a claim on one kind of device.

    Runs include those of learning-rate searches, as far as they can be foreseen.
    """

    cells: int
    """Runs in all."""
    left: int
    """Runs that are missing."""
    seconds: float | None
    """The seconds that these take, judged by finished runs; None if those do not tell."""
    timings: int
    """Timings of layers in all."""
    untimed: int
    """Timings that are missing."""
    most_to_come: int
    """The most runs that searches may add, which their results decide."""
    doublings: int
    """The most times that training may go on with twice the budget, which is in none of the others."""


def remaining_work(verdict: Verdict, stored: Stored, *, device: str) -> RemainingWork:
    """Return what decides a claim on a device, and what of that is missing.

    Args:
        verdict: the verdict on the claim by what is stored.
    """
    claim, seeds = verdict.claim, verdict.next_seeds(device_class(device))
    costs: list[float | None] = []
    total = left = most_to_come = doublings = 0
    finished = fit_cost_model(stored.results.values(), device)
    for work in _by_source(claim, device, seeds):
        joined = joining(work.cells, stored.find(work.cells, work.search, device_class(device)))
        done = settled_by_former_rules(work.cells, lambda cell: stored.results.get(cell.id), work.search)
        settled = {cell.search_key for cell in work.cells if cell.id in joined or cell.id in done}
        waiting = [cell for cell in work.cells if cell.search_key not in settled]
        tuning, missing, more = pending_cells(waiting, stored.results.get, work.search, retry=False)
        cells = [*tuning, *work.cells]
        to_run = [*joined.values(), *(cell for cell in cells if cell.id in missing)]
        total, left, most_to_come = total + len(cells), left + len(to_run), most_to_come + more
        doublings = max([doublings, *(cell.protocol.rungs - 1 for cell in to_run)])
        costs += [estimate_seconds(group, finished) for group in groups(to_run)]
    return RemainingWork(
        total,
        left,
        total_seconds(costs),
        timings=sum(len(each.work(device, seeds).timings) for each in claim.deciding),
        untimed=sum(len(each.missing(stored, device, seeds).timings) for each in claim.deciding),
        most_to_come=most_to_come,
        doublings=doublings,
    )


def _by_source(claim: Claim, device: str, seeds: int) -> Iterator[Work]:
    """Yield the work of the measures of a claim, those of one source together: they share cells."""
    by_source: dict[str, tuple[Work, dict[str, Cell]]] = {}
    for measure in claim.deciding:
        work = measure.work(device, seeds)
        if work.cells:
            _, cells = by_source.setdefault(measure.source.name, (work, {}))
            cells.update({cell.id: cell for cell in work.cells})
    for work, cells in by_source.values():
        yield Work(tuple(cells.values()), work.search)

"""What would decide a claim, how much of it is there, and what the rest may cost."""

from typing import NamedTuple

from linbench.claims.cells import parts
from linbench.claims.speed_evidence import untimed
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import Verdict
from linbench.engine.cost import pace, seconds
from linbench.engine.former import settled
from linbench.engine.groups import groups
from linbench.engine.lr_search import ahead
from linbench.experiments.device import device_class


class Outlook(NamedTuple):
    """On this kind of device, searches for learning rates among the cells as far as they can be foreseen."""

    cells: int
    left: int
    seconds: float | None
    """By what finished cells took; None where that tells nothing of some."""
    timings: int
    untimed: int


def outlook(verdict: Verdict, stored: Stored, *, device: str) -> Outlook:
    """Of a claim on a device, by the verdict of what is stored."""
    claim, every, left, costs = verdict.claim, 0, 0, list[float | None]()
    paced = pace(stored.results.values(), device)
    for part in parts(claim, device=device, longer=verdict.budget(device_class(device))):
        done = settled(part.cells, lambda cell: stored.results.get(cell.id), part.search)
        tuning, missing = ahead(
            [cell for cell in part.cells if cell.id not in done], stored.results.get, part.search, retry=False
        )
        cells = [*tuning, *part.cells]
        every, left = every + len(cells), left + len(missing)
        for group in groups([cell for cell in cells if cell.id in missing]):
            costs.append(seconds(group, paced))
    known = [cost for cost in costs if cost is not None]
    return Outlook(
        every,
        left,
        sum(known) if len(known) == len(costs) else None,
        len(claim.timed),
        len(untimed(claim, stored, device=device)),
    )

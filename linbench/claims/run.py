"""Deciding claims, after running what is missing for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linbench.bench.layer import LayerCase
from linbench.claims.claim import Claim
from linbench.claims.looks import MOST_SEEDS
from linbench.claims.measure import Work
from linbench.claims.requirements import missing_requirements
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import Verdict, verdict
from linbench.common.errors import HopelessError
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.schema import Result
from linbench.results.schema.benchmarks import BenchmarkResult
from linbench.results.schema.cells import CellResult


@dataclass(frozen=True)
class Runner:
    """The functions that make missing results."""

    device: str
    """The device on which they are made, such as "cpu" or "cuda:0"."""
    train: Callable[[Sequence[Cell], SearchSettings | None], list[CellResult]]
    """Train cells and store their results; may raise HopelessError if no learning rate works for a model."""
    time_layers: Callable[[Sequence[LayerCase]], list[BenchmarkResult]]
    """Time layers and store their results."""
    warn: Callable[[str], None]
    """Tell the user of a model that could not be run."""


class Decided(NamedTuple):
    """Verdicts, and what they rest on."""

    verdicts: list[Verdict]
    stored: Stored
    """All results after the last run."""
    new: list[Result]
    """The results that were made."""


def decide(claims: Sequence[Claim], load: Callable[[], Stored], runner: Runner | None = None) -> Decided:
    """Decide claims by stored results, and if there is a runner, by what is missing.

    The seeds of the next look of each claim are run, until it is decided or no seed that may still be run
    could decide it.

    Args:
        claims: the claims to decide.
        load: reads the stored results; it is called again after every run.
        runner: makes missing results; None: nothing is run.
    """
    stored = load()
    verdicts = [verdict(claim, stored) for claim in claims]
    new: list[Result] = []
    waiting = [each for each in verdicts if not each.complete] if runner else []
    while runner and waiting:
        kind = device_class(runner.device)
        asked = {each.claim.id: each.next_seeds(kind) for each in waiting}
        new += run_missing(waiting, stored, runner)
        stored = load()
        verdicts = [verdict(claim, stored) for claim in claims]
        # what was not reached cannot be run, and is not tried again
        waiting = [each for each in verdicts if each.next_seeds(kind) > asked.get(each.claim.id, MOST_SEEDS)]
    return Decided(verdicts, stored, new)


def run_missing(verdicts: Sequence[Verdict], stored: Stored, runner: Runner) -> list[Result]:
    """Make the missing results of claims; claims that need what is not installed are skipped.

    Cells of all claims whose learning rates are searched alike run together.
    """
    together: dict[str, tuple[SearchSettings | None, dict[str, Cell]]] = {}
    cases: dict[str, LayerCase] = {}
    for work in _missing(verdicts, stored, runner.device):
        for cells, search in ((work.cells, work.search), (work.joining, None)):
            _, alike = together.setdefault(str(search), (search, {}))
            alike.update({cell.id: cell for cell in cells})
        cases.update({case.id: case for case in work.timings})
    results: list[Result] = []
    for search, alike in together.values():
        try:
            results += runner.train(list(alike.values()), search) if alike else []
        except HopelessError as error:  # other models have run
            runner.warn(str(error))
    if cases:
        results += runner.time_layers(list(cases.values()))
    return results


def _missing(verdicts: Sequence[Verdict], stored: Stored, device: str) -> list[Work]:
    kind = device_class(device)
    return [
        measure.missing(stored, device, each.next_seeds(kind))
        for each in verdicts
        if not missing_requirements(each.claim)
        for measure in each.claim.deciding
    ]

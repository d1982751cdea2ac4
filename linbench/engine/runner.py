"""Many cells, group by group: finished ones are not repeated, and no cell's fault stops the others."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from linbench.common.errors import StorageError
from linbench.common.laws import allowed
from linbench.engine.checkpoint import Checkpoints
from linbench.engine.executors.base import OpenExecutor
from linbench.engine.groups import groups
from linbench.engine.in_process import IN_PROCESS
from linbench.engine.jobs import Job, Message, Reported, plugin_sources
from linbench.engine.limits import require_files
from linbench.engine.probe import Marks
from linbench.engine.progress import Progress
from linbench.engine.record import blank
from linbench.engine.workers import Outcome
from linbench.experiments.cell import Cell
from linbench.results.record import FINAL, Result, from_outside
from linbench.results.store import Store

TRIES = 3
"""Times that what is left of a group is handed out, when its worker, node or GPU is lost."""

_POLL_SECONDS = 0.5

Following = Callable[[Mapping[str, Result]], Iterable[Cell]]
"""What is to be run by the results so far, which stand by their ids; it may name again what it named
before."""


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress,
    *,
    executor: OpenExecutor = IN_PROCESS,
    again: bool = False,
    retry: bool = True,
    stack: int | None = None,
    then: Following | None = None,
    allow: Iterable[str] = (),
) -> list[Result]:
    """The results of `cells`, in their order and each once, and of what follows from them, `then`, as soon as
    there is a place for it; each is kept as soon as it is there. `again` repeats finished ones, `retry` those
    that failed.

    Cells that differ in seed, learning rate and weight decay alone train together, at most `stack` of them
    (None: as many as suit the device). What finds no memory beside others that share its GPU is run once more
    when they are done; what is lost with its worker or GPU is handed out again, `TRIES` times in all. Several
    launchers may work on one folder: each cell is run by whoever claims it first. A group that was broken off
    goes on from its last checkpoint. Whoever measures, claims and results are this process's alone. Before
    anything is trained, layers that are not shipped are probed for the laws that every layer must keep, in a
    process of their own, unless all their results are there; `allow` names laws that may be broken, which
    marks the results. Raises UserError: a layer breaks a law, or the process may not open files enough;
    StorageError: results cannot be kept; DeviceLostError: this process measures, and its GPU is lost.
    """
    marks = Marks(allowed(allow), executor.timeout)
    require_files(
        max((len(group) for group in groups(cells, largest=stack, sharing=executor.sharing)), default=0),
        executor.places,
    )
    store.prepare()
    book = _Book(store, progress, partial(stands, again=again, retry=retry), then, marks)
    try:
        book.add(cells)
        while waiting := book.waiting:
            beside = [cell for cell in waiting if cell.id not in book.crowded]
            who = executor if beside else executor.alone()
            # other launchers are at all of them
            if not book.run(beside or waiting, who, partial(groups, largest=stack, sharing=who.sharing)):
                time.sleep(_POLL_SECONDS)
    finally:
        book.give_back()
        progress.end()
    return [book.results[name] for name in book.cells]


class _Book:
    """Which cells of a run have a result, and which are claimed for a job."""

    def __init__(
        self,
        store: Store,
        progress: Progress,
        good: Callable[[Result | None], bool],
        then: Following | None,
        marks: Marks,
    ) -> None:
        self.store, self.progress, self.good, self.then, self.marks = store, progress, good, then, marks
        self.cells: dict[str, Cell] = {}
        self.results: dict[str, Result] = {}
        self.claims: dict[str, ExitStack] = {}
        self.crowded: set[str] = set()
        """What found no memory beside others."""
        self.losses = Counter[str]()
        """How often a cell was lost with its worker or GPU."""
        self.again: list[Cell] = []
        """What was, and is to be handed out once more."""
        self.news = True
        """Whether there are results that `then` has not seen."""
        self.checkpoints = Checkpoints(store.checkpoints)

    @property
    def waiting(self) -> list[Cell]:
        """What has no result yet."""
        return [cell for name, cell in self.cells.items() if name not in self.results]

    def add(self, cells: Iterable[Cell]) -> list[Cell]:
        """Those that were not known; their layers are probed. Raises UserError: one breaks a law."""
        new = {cell.id: cell for cell in cells if cell.id not in self.cells}
        self.marks.probe(
            [cell for cell in new.values() if plugin_sources(cell) and not self.good(self.store.get(cell.id))]
        )
        self.cells |= new
        if new:
            self.progress.begin(list(new.values()))
        return list(new.values())

    def run(
        self,
        cells: Sequence[Cell],
        executor: OpenExecutor,
        grouped: Callable[[Sequence[Cell]], Iterable[Sequence[Cell]]],
    ) -> bool:
        """Hand out all of `cells`, and of what follows, that nobody else is at, and keep what is found.
        Whether anything was."""
        handed: list[Job] = []
        before = len(self.results)

        def jobs() -> Iterator[Job | None]:
            these = cells
            while True:
                for group in grouped(these):
                    for job in self.jobs(group):
                        handed.append(job)
                        yield job
                while not (these := self.following()):
                    if not self.claims:
                        return
                    yield None

        for place, outcome in executor(jobs(), tell=partial(self.hear, shared=executor.sharing > 1)):
            self.over(handed[place], outcome)
        return len(self.results) > before

    def following(self) -> list[Cell]:
        """What was lost, and what `then` asks for now, and nobody has before."""
        again, self.again = self.again, []
        news, self.news = self.news, False
        return again + (self.add(self.then(self.results)) if self.then and news else [])

    def jobs(self, group: Sequence[Cell]) -> Iterator[Job]:
        """What there is to measure of a group; what is `good` already needs no job."""
        ours = [cell for cell in group if self.claimed(cell)]
        for cell in ours:
            if self.good(self.store.get(cell.id)):
                self.done(cell, stored=True)
        missing = {cell.id: cell for cell in ours if cell.id not in self.results}
        for name, cells in self.checkpoints.of(group, missing, self.results.keys()):
            resumed = [cell.id for cell in cells if missing.pop(cell.id, None)]
            yield Job(cells, resumed, self.checkpoints.folder.absolute(), name)
        if missing:
            yield Job(list(missing.values()), list(missing), self.checkpoints.folder.absolute())

    def hear(self, message: Message, *, shared: bool) -> None:
        """Keep a result that somebody waits for, but not that there was no memory on a GPU that is
        `shared`."""
        if isinstance(message, Reported):
            self.progress.report([self.cells[name] for name in message.cells], message.report)
        elif message["id"] in self.claims and message["status"] == "oom" and shared:
            self.crowded.add(message["id"])
            self.claims.pop(message["id"]).close()
        elif message["id"] in self.claims:
            self.store.put(self.marks.on(message))
            self.done(self.cells[message["id"]], stored=False)

    def over(self, job: Job, outcome: Outcome) -> None:
        """What has no result by now has failed, or is to be handed out again. A checkpoint may hold runs that
        were over, whose results got lost: they are run anew."""
        left = [self.cells[name] for name in job.wanted if name in self.claims]
        self.losses.update(cell.id for cell in left if outcome.lost)
        for cell in left:
            if outcome.lost and self.losses[cell.id] < TRIES:
                self.claims.pop(cell.id).close()
                self.again.append(cell)
            elif job.resumes is not None and outcome.failure is None:
                self.claims.pop(cell.id).close()
            else:
                status = "timeout" if outcome.late else "oom" if outcome.full else "failed"
                reason = outcome.failure or "its worker lost it"
                reason = f"{TRIES} times over: {reason}" if outcome.lost else reason
                outside = outcome.outside or outcome.failure is None
                self.store.put(
                    blank(cell, len(job.cells), None)
                    | {
                        "status": status,
                        "reason": reason,
                        "outside": outside,
                    }
                )
                self.done(cell, stored=False)
        if outcome.failure is None:
            self.checkpoints.forget(job.name)

    def done(self, cell: Cell, *, stored: bool) -> None:
        """The cell has its result."""
        self.results[cell.id], self.news = reported(cell, self.store), True
        self.progress.finished(cell, self.results[cell.id], stored=stored)
        self.claims.pop(cell.id).close()

    def claimed(self, cell: Cell) -> bool:
        """Whether the cell is ours now, until it is done."""
        with ExitStack() as claim:
            if ours := claim.enter_context(self.store.claim(cell.id)):
                self.claims[cell.id] = claim.pop_all()
        return ours

    def give_back(self) -> None:
        """Leave what is not done to others."""
        while self.claims:
            self.claims.popitem()[1].close()


def reported(cell: Cell, store: Store) -> Result:
    """The result of a cell that has one: what is shown is what is kept. Raises StorageError: it is gone or
    altered."""
    result = store.get(cell.id)
    if result is None:
        raise StorageError(
            f"the result of {cell.id} was altered in {store.folder} while it was written; look for another"
            " program at work there."
        )
    if (result["purpose"], cell.purpose) == ("tuning", "report"):  # asked for once more, for another purpose
        result |= {"purpose": "report"}
        store.put(result)
    return result


def stands(result: Result | None, *, again: bool, retry: bool) -> bool:
    """Whether a stored result will do: not if cells are to be run `again`, nor if what ended them came from
    outside, nor, with `retry`, if they failed."""
    return (
        result is not None
        and not again
        and (result["status"] in FINAL or not (retry or from_outside(result)))
    )

"""Runs many cells, group by group: finished ones are not repeated, and no cell's failure stops the others."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from linbench.common.errors import StorageError
from linbench.common.laws import parse_laws
from linbench.engine.checkpoint import Checkpoints
from linbench.engine.executors.base import OpenExecutor
from linbench.engine.groups import groups
from linbench.engine.in_process import IN_PROCESS
from linbench.engine.job_queue import GroupQueue, WaitingGroup, divide
from linbench.engine.jobs import Job, Message, Reported, Spent, plugin_sources
from linbench.engine.limits import require_files
from linbench.engine.probe import Marks
from linbench.engine.progress import Progress
from linbench.engine.record import new_record
from linbench.engine.workers import Outcome
from linbench.experiments.cell import Cell
from linbench.results.record import FINAL, from_outside
from linbench.results.schema.cells import CellResult
from linbench.results.schema.fields import STATUSES
from linbench.results.store import Store

TRIES = 3
"""Times that a cell is handed out, if its worker, node or GPU is lost each time."""

_POLL_SECONDS = 0.5
"""Seconds between two looks at cells that other launchers are running."""

NextCells = Callable[[Mapping[str, CellResult]], Iterable[Cell]]
"""A callback: given the results so far by cell id, it returns further cells to run. Repeats are ignored."""

Grouping = Callable[[Sequence[Cell]], Iterable[Sequence[Cell]]]
"""A function that divides cells into groups that train together."""


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress,
    *,
    executor: OpenExecutor = IN_PROCESS,
    again: bool = False,
    retry: bool = True,
    stack: int | None = None,
    next_cells: NextCells | None = None,
    allow: Iterable[str] = (),
) -> list[CellResult]:
    """Run the cells that have no stored result, and return the results of all, in order and each once.

    A result is stored as soon as it is there. Cells that differ in seed, learning rate and weight decay alone
    train together. A cell that runs out of memory on a shared GPU is run once more when the others are done;
    one that is lost with its worker or GPU is handed out again, `TRIES` times in all. A group that was broken
    off goes on from its last checkpoint.

    Several launchers may work on one folder: each cell is run by the one that claims it first. Wherever cells
    are trained, claims and results are written by this process alone.

    Layers that linbench does not ship are probed first, in a process of their own, for the laws that every
    layer must keep, unless all their results are stored.

    Args:
        cells: the cells to begin with.
        store: where results are looked up and kept.
        progress: a listener.
        executor: where cells are trained.
        again: run cells again that have a final result.
        retry: run cells again that failed.
        stack: cells that train together, at most; None for as many as suit the device.
        next_cells: called when there are new results and a place for more cells.
        allow: laws that layers may break; their results are marked.

    Returns: results of `cells` and of all that `next_cells` gave.

    Raises UserError: a layer breaks a law, or the process may not open enough files; StorageError: results
    cannot be kept; DeviceLostError: this process trains, and its GPU is lost.
    """
    marks = Marks(parse_laws(allow), executor.timeout)
    sizes = [len(group) for group in groups(cells, largest=stack, sharing=executor.sharing)]
    require_files(max(sizes, default=0), executor.places)
    store.prepare()
    ledger = _RunLedger(store, progress, partial(is_final, again=again, retry=retry), next_cells, marks)
    try:
        ledger.add(cells)
        while waiting := ledger.waiting:
            shareable = [cell for cell in waiting if cell.id not in ledger.needs_exclusive_gpu]
            suitable = executor if shareable else executor.alone()
            grouping = partial(groups, largest=stack, sharing=suitable.sharing)
            if not ledger.run(shareable or waiting, suitable, grouping):
                time.sleep(_POLL_SECONDS)  # other launchers are running all of them
    finally:
        ledger.release_claims()
        progress.end()
    return [ledger.results[name] for name in ledger.cells]


class _RunLedger:
    """The cells of a run: which have a result, and which are claimed for a job."""

    def __init__(
        self,
        store: Store,
        progress: Progress,
        is_final: Callable[[CellResult | None], bool],
        next_cells: NextCells | None,
        marks: Marks,
    ) -> None:
        self.store, self.progress, self.marks = store, progress, marks
        self.is_final, self.next_cells = is_final, next_cells
        self.cells: dict[str, Cell] = {}
        self.results: dict[str, CellResult] = {}
        self.claims: dict[str, ExitStack] = {}
        self.needs_exclusive_gpu: set[str] = set()
        """Ids of cells that ran out of memory on a GPU that they shared."""
        self.running = 0
        """Jobs that are being done."""
        self.losses = Counter[str]()
        """Times that each cell was lost with its worker or GPU, by id."""
        self.requeued: list[Cell] = []
        self.has_new_results = True
        """True if there are results that `next_cells` has not seen."""
        self.checkpoints = Checkpoints(store.checkpoints)

    @property
    def waiting(self) -> list[Cell]:
        """The cells without a result."""
        return [cell for name, cell in self.cells.items() if name not in self.results]

    def add(self, cells: Iterable[Cell]) -> list[Cell]:
        """Add cells to the run, and return the new ones. Raises UserError: a layer of theirs breaks a law."""
        new = {cell.id: cell for cell in cells if cell.id not in self.cells}
        from_plugins = [cell for cell in new.values() if plugin_sources(cell)]
        self.marks.probe([cell for cell in from_plugins if not self.is_final(self.store.get(cell.id))])
        self.cells |= new
        if new:
            self.progress.begin(list(new.values()))
        return list(new.values())

    def run(self, cells: Sequence[Cell], executor: OpenExecutor, grouping: Grouping) -> bool:
        """Run these cells, and those that results lead to, except cells that other launchers have claimed.

        Returns: whether there are new results.
        """
        handed_out: list[Job] = []
        before = len(self.results)
        shared = executor.sharing > 1
        self.running = 0
        queue = GroupQueue(executor.devices)
        queue.add(grouping(cells))
        jobs = self._jobs_until_done(queue, grouping, handed_out)
        for number, outcome in executor(jobs, tell=partial(self.on_message, shared=shared)):
            self.running -= 1
            self.on_job_end(handed_out[number], outcome)
        return len(self.results) > before

    def _jobs_until_done(
        self, queue: GroupQueue, grouping: Grouping, handed_out: list[Job]
    ) -> Iterator[Job | None]:
        """Yield jobs for groups that wait, and for cells that follow from results.

        None is yielded while all depends on jobs that are running. Jobs are noted in `handed_out`.
        """
        while True:
            queue.add(grouping(self.more_cells()))
            if waiting := queue.next(self.running):
                for job in self.jobs(waiting):
                    handed_out.append(job)
                    self.running += 1
                    yield job
            elif self.claims:
                yield None
            else:
                return

    def more_cells(self) -> list[Cell]:
        """Return cells that were lost, and new ones that results lead to."""
        requeued, self.requeued = self.requeued, []
        has_new_results, self.has_new_results = self.has_new_results, False
        if self.next_cells is None or not has_new_results:
            return requeued
        return requeued + self.add(self.next_cells(self.results))

    def jobs(self, waiting: WaitingGroup) -> Iterator[Job]:
        """Claim the cells of a group, and yield jobs for those that have no final result.

        Cells that go on from a checkpoint stay together.
        """
        group = waiting.cells
        claimed = [cell for cell in group if self.claim(cell)]
        for cell in claimed:
            if self.is_final(self.store.get(cell.id)):
                self.finish(cell, stored=True)
        missing = {cell.id: cell for cell in claimed if cell.id not in self.results}
        folder = self.checkpoints.folder.absolute()
        for name, cells in self.checkpoints.resumable(group, missing, self.results.keys()):
            resumed = [cell.id for cell in cells if missing.pop(cell.id, None)]
            yield Job(cells, resumed, folder, name)
        for part in divide(list(missing.values()), waiting.parts):
            yield Job(part, [cell.id for cell in part], folder)

    def on_message(self, message: Message, *, shared: bool) -> None:
        """Pass on a report or what a group took, or store a result that is waited for.

        A result that says the GPU had no memory does not count if the GPU is shared: the cell will be run
        alone.
        """
        if isinstance(message, Reported):
            self.progress.report([self.cells[name] for name in message.cells], message.report)
            return
        if isinstance(message, Spent):
            cells = [self.cells[name] for name in message.cells]
            self.progress.spent(cells, message.seconds, message.tokens)
            return
        name = message["id"]
        if name not in self.claims:
            return
        if message["status"] == "oom" and shared:
            self.needs_exclusive_gpu.add(name)
            self.claims.pop(name).close()
        else:
            self.store.put(self.marks.on(message))
            self.finish(self.cells[name], stored=False)

    def on_job_end(self, job: Job, outcome: Outcome) -> None:
        """Deal with the cells of a job that have no result: they failed, or are to be handed out again."""
        without_result = [self.cells[name] for name in job.wanted if name in self.claims]
        self.losses.update(cell.id for cell in without_result if outcome.lost)
        for cell in without_result:
            if outcome.lost and self.losses[cell.id] < TRIES:
                self.claims.pop(cell.id).close()
                self.requeued.append(cell)
            elif job.resumes is not None and outcome.failure is None:
                # the checkpoint held runs that were over, whose results were lost: they are run anew
                self.claims.pop(cell.id).close()
            else:
                self.store.put(_failed_record(cell, job, outcome))
                self.finish(cell, stored=False)
        if outcome.failure is None:
            self.checkpoints.delete(job.name)

    def finish(self, cell: Cell, *, stored: bool) -> None:
        """Take up the result of a cell that is in the store, and give up the claim."""
        self.results[cell.id] = stored_result(cell, self.store)
        self.has_new_results = True
        self.progress.finished(cell, self.results[cell.id], stored=stored)
        self.claims.pop(cell.id).close()

    def claim(self, cell: Cell) -> bool:
        """Claim a cell until it is finished, and return whether that worked."""
        with ExitStack() as claim:
            if claimed := claim.enter_context(self.store.claim(cell.id)):
                self.claims[cell.id] = claim.pop_all()
        return claimed

    def release_claims(self) -> None:
        """Leave cells that are not finished to other launchers."""
        while self.claims:
            self.claims.popitem()[1].close()


def _failed_record(cell: Cell, job: Job, outcome: Outcome) -> CellResult:
    status: STATUSES
    if outcome.late:
        status = "timeout"
    elif outcome.full:
        status = "oom"
    else:
        status = "failed"
    reason = outcome.failure or "its worker lost it"
    return {
        **new_record(cell, len(job.cells), None),
        "status": status,
        "reason": f"{TRIES} times over: {reason}" if outcome.lost else reason,
        "outside": outcome.outside or outcome.failure is None,
    }


def stored_result(cell: Cell, store: Store) -> CellResult:
    """Return the stored result of a cell that has one; its purpose becomes the cell's.

    Raises StorageError: the result is gone or was altered.
    """
    result = store.get(cell.id)
    if result is None:
        raise StorageError(
            f"the result of {cell.id} was altered in {store.folder} while it was written; look for another"
            " program at work there."
        )
    if result["purpose"] != "report" and cell.purpose == "report":
        result |= {"purpose": "report"}
        store.put(result)
    return result


def is_final(result: CellResult | None, *, again: bool, retry: bool) -> bool:
    """Return whether a stored result is final, so that its cell is not run.

    It is not if cells are to be run `again`, if something from outside ended its run, or, with `retry`, if
    its run failed.
    """
    if result is None or again:
        return False
    return result["status"] in FINAL or not (retry or from_outside(result))

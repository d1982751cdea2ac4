"""Cells from beginning to end: train, judge, and say what they were measured with."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from linbench.common.errors import DeviceLostError, PluginError, Signalled, StorageError, message_of
from linbench.common.memory import in_gib, total_memory
from linbench.engine.checkpoint import Checkpoint
from linbench.engine.cost import least_bytes
from linbench.engine.evaluate import Exam
from linbench.engine.hidden_state import carried
from linbench.engine.progress import Report
from linbench.engine.record import _size, _verdict, blank
from linbench.engine.stack import Stack
from linbench.engine.step import Training
from linbench.engine.surroundings import Surroundings
from linbench.engine.train import train
from linbench.experiments.cell import Cell
from linbench.experiments.loading import theirs
from linbench.results.record import Result

T = TypeVar("T")

_BESIDE = 0.1
"""The share of a GPU's memory above which what this process has not reserved itself is another's: a context
and libraries take some hundreds of MiB."""


def measure(
    cells: Sequence[Cell],
    on_report: Callable[[Report], None],
    *,
    on_rest: Callable[[Training], None] = lambda training: None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Result]:
    """Run cells that differ in seed, learning rate and weight decay alone, as one program, and give each
    result as soon as it is there.

    `on_rest` is called whenever the training can be taken down; it goes on from a `checkpoint` of these very
    cells.

    Whatever goes wrong in a cell becomes its status, so that others can go on: what does not fit, or cannot
    be stacked, is tried in smaller groups, at last alone. Raises DeviceLostError: no others can, here.

    A result holds, beside the cell's identity: status (`ok`, `diverged`, `oom`, `timeout`, `failed`) with a
    reason; `outside`: whether that is nothing of the cell's own; marks (`undertrained`); test metrics with
    sums and weights by slice, of several tests those of each, with its settings, length and chance, and the
    mean of every metric; the curve over steps; chance, and by which scoring of the task; parameters, state
    size and FLOPs per token; seconds, of the whole stack; how many cells were stacked, and why not more; what
    the cell was run for (`report`, `tuning`), and what `linbench.engine.lr_search` tried before; and the
    environment.
    """
    heard: list[BaseException] = []
    on_report, on_rest = _raising(on_report, heard), _raising(on_rest, heard)
    waiting: list[tuple[list[Cell], str | None]] = [(list(cells), None)]
    while waiting:
        group, note = waiting.pop()
        done: set[str] = set()
        try:
            for result in _surroundings(group).within(_measured(group, note, on_report, on_rest, checkpoint)):
                done.add(result["id"])
                yield result
        except (StorageError, Signalled, KeyboardInterrupt, GeneratorExit):
            raise
        # a mixer's own fault, ours or a user's, SystemExit too: recorded with its place, and the run goes on
        except BaseException as error:
            if any(error is each for each in heard):  # of whoever listens, no fault of a cell
                raise
            if not answers(group[0].device):
                raise DeviceLostError(f"the GPU answers this process no more: {theirs(error)}.") from error
            checkpoint = None
            left = [cell for cell in group if cell.id not in done]
            oom = out_of_memory(error)
            if len(group) > 1:
                size = len(group) // 2 if oom else 1
                note = (
                    f"{len(group)} were too many: {theirs(error)}"
                    if oom
                    else f"could not be stacked: {theirs(error)}"
                )
                waiting += [(left[start : start + size], note) for start in range(0, len(left), size)][::-1]
            else:
                status = (
                    _full(error, group[0].device) if oom else {"status": "failed", "reason": theirs(error)}
                )
                yield blank(group[0], 1, note) | status
        if group[0].device != "cpu":
            gc.collect()  # what was captured refers to itself, and would keep its memory from the next group


def _raising(call: Callable[[T], None], raised: list[BaseException]) -> Callable[[T], None]:
    """The same call, which notes what it raises."""

    def noting(given: T) -> None:
        try:
            call(given)
        except BaseException as error:
            raised.append(error)
            raise

    return noting


def _full(error: BaseException, device: str) -> dict[str, Any]:
    """The status of a cell that found no memory, which other processes may have taken."""
    others = 0 if device == "cpu" else _taken_by_others(device)
    words = f", while other processes held {in_gib(others)} of this GPU" if others else ""
    return {"status": "oom", "reason": message_of(error).splitlines()[0] + words, "outside": bool(others)}


def _taken_by_others(device: str) -> int:
    """Bytes of a GPU's memory, if they are more than `_BESIDE` of it; else 0."""
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    return others if others > _BESIDE * total else 0


def answers(device: str) -> bool:
    """Whether a device still computes for this process. A GPU that met an illegal address does not, nor one
    that other processes compute on through the same server (MPS), when one of these is killed."""
    try:
        if device != "cpu":
            torch.cuda.synchronize(device)
    except Exception:  # torch names it by one class or another, and its words are the driver's
        return False
    return True


def out_of_memory(error: BaseException) -> bool:
    """torch has an exception for what it asks of a GPU's memory itself; what a library, a graph or a CPU
    lacks is told by words."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and says_out_of_memory(str(error))
    )


def says_out_of_memory(words: str) -> bool:
    """Of a GPU, cuBLAS and its like, and a CPU, which depends on the system."""
    return any(
        said in words
        for said in ("out of memory", "STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")
    )


def _measured(
    cells: Sequence[Cell],
    note: str | None,
    on_report: Callable[[Report], None],
    on_rest: Callable[[Training], None],
    checkpoint: Checkpoint | None,
) -> Iterator[Result]:
    began = time.perf_counter()
    first = cells[0]
    _require_memory(cells)
    with started(cells) as training:
        size, training.note = _size(first, training.stack.model), note
        if checkpoint is not None and checkpoint.fits(training):
            checkpoint.restore(training)
            began -= training.seconds
        for runs, trained in train(training, on_report, on_rest):
            judged: list[Any] = [None] * len(runs)
            if trained is not None:
                judged = Exam([run.cell for run in runs], "test", first.protocol.test_examples)(trained)
            for run, judgement in zip(runs, judged, strict=True):
                result = blank(run.cell, len(cells), training.note) | {
                    "model": size,
                    "curve": run.curve,
                    "seconds": time.perf_counter() - began,
                }
                yield result | _verdict(run, judgement)


def _surroundings(cells: Sequence[Cell]) -> Surroundings:
    return Surroundings(*(cell.seed for cell in cells))


def _require_memory(cells: Sequence[Cell]) -> None:
    """A GPU says by itself what it has no memory for. A CPU's process is killed for it, and with it all that
    it knew.

    Raises torch.OutOfMemoryError: cells cannot be trained together on this machine's CPU.
    """
    if cells[0].device == "cpu" and (needed := len(cells) * least_bytes(cells[0])) > total_memory():
        raise torch.OutOfMemoryError(
            f"out of memory: training takes {in_gib(needed)} at the least, and this machine has"
            f" {in_gib(total_memory())}"
        )


@contextmanager
def started(cells: Sequence[Cell]) -> Iterator[Training]:
    """Their training, before its first step. Meanwhile all that the process has set is as
    `linbench.engine.surroundings` has it, and their GPU is the one that computes.

    Raises PluginError: several, of a module that can only train alone.
    """
    device = cells[0].device
    gpus = [device] if device != "cpu" else []
    with (
        _surroundings(cells).entered(),
        torch.cuda.device(device if gpus else -1),
        torch.random.fork_rng(gpus),
    ):
        models = [cell.model.build(cell.task, seed=cell.seed).to(device) for cell in cells]
        only_alone = carried(cells[0])
        if only_alone and len(cells) > 1:
            raise PluginError(only_alone)
        # while parameters are those that the models made, which may be marked
        rules = models[0].parameter_rules()
        training = Training.begun(Stack.of(models), cells, rules)
        training.carried = only_alone
        yield training

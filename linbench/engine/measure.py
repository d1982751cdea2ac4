"""Trains and evaluates a group of cells, and makes their results."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from linbench.common.errors import DeviceLostError, PluginError, Signalled, StorageError, message_of
from linbench.common.hashing import stable_key
from linbench.common.memory import in_gib, total_memory
from linbench.engine.checkpoint import Checkpoint
from linbench.engine.cost import least_bytes
from linbench.engine.evaluate import Evaluation, EvaluationResult
from linbench.engine.first_token import add_first_token_shares
from linbench.engine.hidden_state import hidden_state_reason
from linbench.engine.meter import BUILDING, EVALUATION, Meter
from linbench.engine.progress import Report
from linbench.engine.record import FinalFields, final_fields, model_size, new_record
from linbench.engine.stack import Stack
from linbench.engine.step import Training
from linbench.engine.surroundings import Surroundings
from linbench.engine.train import train
from linbench.engine.trunk import Trunks
from linbench.engine.written import add_generated
from linbench.experiments.cell import Cell
from linbench.experiments.loading import describe_error
from linbench.models.backbone import Backbone
from linbench.results.schema.cells import CellResult

T = TypeVar("T")

_OWN_OVERHEAD = 0.1
"""Share of a GPU's memory that this process may use besides what torch has reserved.

More is another process's: a context and libraries take some hundreds of MiB.
"""


def measure(
    cells: Sequence[Cell],
    on_report: Callable[[Report], None],
    *,
    on_checkpoint: Callable[[Training], None] = lambda training: None,
    checkpoint: Checkpoint | None = None,
    trunks: Trunks | None = None,
    meter: Meter | None = None,
    on_trained: Callable[[Stack], None] = lambda trained: None,
) -> Iterator[CellResult]:
    """Train and evaluate a group of cells as one program, and yield each result as soon as it is there.

    Whatever goes wrong in a cell becomes its status, so that others can go on. A group that does not fit in
    memory is tried in halves; one that cannot be stacked is tried cell by cell.

    Args:
        cells: cells that differ in seed, learning rate and weight decay alone.
        on_report: called with reports on the training.
        on_checkpoint: called whenever the state of the training is complete and can be kept.
        checkpoint: a checkpoint of these very cells, from which training goes on.
        trunks: where trunks are kept, from which training goes on if there is no checkpoint.
        meter: counts what all this takes.
        on_trained: called with models that were trained and did not diverge, before their results.

    Yields: records with the fields of `linbench.results.schema`: status (`ok`, `diverged`, `oom`, `timeout`,
    `failed`) and its reason, marks, test metrics and slices, the curve over steps, sizes, seconds of the
    whole stack, its size, and the environment.

    Raises DeviceLostError: the GPU does not answer this process, or no more, so that no cell can run in it.
    """
    require_device(cells[0].device)
    from_callbacks: list[BaseException] = []
    on_report = _noting_errors(on_report, from_callbacks)
    on_checkpoint = _noting_errors(on_checkpoint, from_callbacks)
    on_trained = _noting_errors(on_trained, from_callbacks)
    meter = meter or Meter()
    waiting: list[tuple[list[Cell], str | None]] = [(list(cells), None)]
    while waiting:
        group, note = waiting.pop()
        done: set[str] = set()
        try:
            results = _run_group(group, note, on_report, on_checkpoint, checkpoint, trunks, meter, on_trained)
            for result in _surroundings(group).within(results):
                done.add(result["id"])
                yield result
        except (StorageError, Signalled, KeyboardInterrupt, GeneratorExit):
            raise
        # the fault of a mixer, linbench's or a user's, SystemExit too: it is recorded, and the run goes on
        except BaseException as error:
            meter.turn_to(None)
            if any(error is raised for raised in from_callbacks):  # the fault of a callback
                raise
            if not device_responds(group[0].device):
                raise DeviceLostError(
                    f"the GPU answers this process no more: {describe_error(error)}."
                ) from error
            checkpoint = None
            unfinished = [cell for cell in group if cell.id not in done]
            if len(group) > 1:
                waiting += _smaller_groups(unfinished, len(group), error)[::-1]
            else:
                failed: CellResult = {
                    **new_record(group[0], 1, note),
                    **_failure_fields(error, group[0].device),
                }
                yield failed
        if group[0].device != "cpu":
            gc.collect()  # captured graphs refer to themselves, and would keep memory from the next group


def _smaller_groups(
    cells: Sequence[Cell], size: int, error: BaseException
) -> list[tuple[list[Cell], str | None]]:
    """Divide what is left of a group of `size` cells that failed, and say why in a note."""
    if out_of_memory(error):
        part, note = size // 2, f"{size} were too many: {describe_error(error)}"
    else:
        part, note = 1, f"could not be stacked: {describe_error(error)}"
    return [(list(cells[start : start + part]), note) for start in range(0, len(cells), part)]


def _noting_errors(call: Callable[[T], None], raised: list[BaseException]) -> Callable[[T], None]:
    """Return a call that adds what it raises to a list."""

    def call_and_note(argument: T) -> None:
        try:
            call(argument)
        except BaseException as error:
            raised.append(error)
            raise

    return call_and_note


def _failure_fields(error: BaseException, device: str) -> FinalFields:
    """Return status and reason of a cell; other processes may have taken the memory that it lacked."""
    if not out_of_memory(error):
        return {"status": "failed", "reason": describe_error(error)}
    others = 0 if device == "cpu" else _taken_by_others(device)
    words = f", while other processes held {in_gib(others)} of this GPU" if others else ""
    return {"status": "oom", "reason": message_of(error).splitlines()[0] + words, "outside": bool(others)}


def _taken_by_others(device: str) -> int:
    """Return the bytes of a GPU's memory that other processes hold; 0 if this one may hold them."""
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    return others if others > _OWN_OVERHEAD * total else 0


def require_device(device: str) -> None:
    """Require that a device computes for this process.

    A GPU that met an illegal address does not. Nor does one that several processes use through one server
    (MPS), when one of them is killed, or before the server is ready.

    Raises DeviceLostError: it does not.
    """
    try:
        if device != "cpu":
            torch.cuda.synchronize(device)
    except Exception as error:  # torch raises several classes, with the driver's words
        raise DeviceLostError(f"the GPU does not answer this process: {describe_error(error)}.") from error


def device_responds(device: str) -> bool:
    """Return whether a device still computes for this process."""
    try:
        require_device(device)
    except DeviceLostError:
        return False
    return True


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory is short.

    torch has an exception for its own allocations on a GPU. Libraries, graphs and the CPU raise RuntimeError
    with a message.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and says_out_of_memory(str(error))


def says_out_of_memory(words: str) -> bool:
    """Return whether a message of torch says that memory is short."""
    return any(phrase in words for phrase in _OUT_OF_MEMORY)


_OUT_OF_MEMORY = ("out of memory", "STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")
"""Phrases of the GPU's driver, of cuBLAS and its like, and of CPUs on different systems."""


def _run_group(
    cells: Sequence[Cell],
    note: str | None,
    on_report: Callable[[Report], None],
    on_checkpoint: Callable[[Training], None],
    checkpoint: Checkpoint | None,
    trunks: Trunks | None,
    meter: Meter,
    on_trained: Callable[[Stack], None],
) -> Iterator[CellResult]:
    began = time.perf_counter()
    meter.turn_to(BUILDING)
    first = cells[0]
    _require_memory(cells)
    with training_context(cells) as training:
        meter.turn_to(None)
        size = model_size(first, training.stack.model)
        training.note, training.meter = note, meter
        if checkpoint is not None and checkpoint.fits(training):
            checkpoint.restore(training)
        elif trunks is not None:
            trunks.restore(training)
        began -= training.seconds
        for runs, trained in train(training, on_report, on_checkpoint):
            evaluations: Sequence[EvaluationResult | None] = [None] * len(runs)
            if trained is not None:
                finished = [run.cell for run in runs]
                meter.turn_to(EVALUATION)
                examples, reason = first.protocol.test_examples, training.hidden_state
                evaluations = Evaluation(finished, "test", examples, note=reason)(trained)
                evaluations = add_first_token_shares(evaluations, trained, finished)
                evaluations = add_generated(evaluations, trained, finished)
                meter.turn_to(None)
                on_trained(trained)
            for run, evaluation in zip(runs, evaluations, strict=True):
                record = new_record(run.cell, len(cells), training.note)
                seconds = time.perf_counter() - began
                result: CellResult = {
                    **record,
                    "model": size,
                    "curve": run.curve,
                    "seconds": seconds,
                    **final_fields(run, evaluation),
                }
                yield result


def _surroundings(cells: Sequence[Cell]) -> Surroundings:
    return Surroundings(*(cell.seed for cell in cells))


def _begin(cell: Cell) -> Backbone:
    """Return the model of a cell with the weights that its training begins with."""
    model = cell.model.build(cell.task, seed=cell.seed)
    if cell.protocol.jitter:
        for name, weights in model.named_parameters():
            draws = torch.Generator().manual_seed(stable_key("jitter", cell.seed, name))
            noise = torch.randn(weights.shape, generator=draws, dtype=weights.dtype)
            weights.data *= 1 + cell.protocol.jitter * noise
    return model


def _require_memory(cells: Sequence[Cell]) -> None:
    """Raise torch.OutOfMemoryError if cells cannot be trained together on this machine's CPU.

    A GPU refuses memory by itself. A process without memory on a CPU is killed, with all that it holds.
    """
    if cells[0].device != "cpu":
        return
    needed = len(cells) * least_bytes(cells[0])
    if needed > total_memory():
        raise torch.OutOfMemoryError(
            f"out of memory: training takes {in_gib(needed)} at the least, and this machine has"
            f" {in_gib(total_memory())}"
        )


@contextmanager
def training_context(cells: Sequence[Cell]) -> Iterator[Training]:
    """Yield the training of a group before its first step, in the context in which it must run.

    In this context the settings of the process are those of `linbench.engine.surroundings`, and the cells'
    GPU is the current one.

    Raises PluginError: there are several cells, of a module that can only train alone.
    """
    device = cells[0].device
    gpus = [device] if device != "cpu" else []
    with (
        _surroundings(cells).entered(),
        torch.cuda.device(device if gpus else -1),
        torch.random.fork_rng(gpus),
    ):
        models = [_begin(cell).to(device) for cell in cells]
        hidden_state = hidden_state_reason(cells[0])
        if hidden_state and len(cells) > 1:
            raise PluginError(hidden_state)
        # before stacking: a model may have marked its parameters, which are replaced then
        rules = models[0].parameter_rules()
        training = Training.start(Stack.of(models), cells, rules)
        training.hidden_state = hidden_state
        yield training

"""`bench data`: how fast the examples of tasks are drawn."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from linbench.bench import peers
from linbench.bench.case import BenchmarkCase, PeerVersion
from linbench.bench.machine import hold_load, marks, sample_load
from linbench.bench.timing import Spread, measure_peak_bytes, time_as_called, time_replayed
from linbench.common.errors import unknown
from linbench.engine.batches import examples_per_draw
from linbench.experiments.pattern import split_task
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.registry import registry
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import DRAW
from linbench.tasks import random
from linbench.tasks.base import Batch, Task

VERSION = 1
"""Version of the measurement of drawing, part of the identity of every result.

Raise it with every change that alters what is measured.
"""

BATCH_TOKENS = 1 << 18
"""Tokens of the single batch that is timed on a GPU beside a block of many."""


@dataclass(frozen=True)
class GeneratorCase(BenchmarkCase):
    """A task at one of its presets, on a device; a CPU draws with one thread."""

    kind: ClassVar[str] = DRAW

    task: str
    preset: str
    device: str
    peer: PeerVersion | None = None
    repeats: int = 5

    @property
    def label(self) -> str:
        """TASK/PRESET, or TASK if it has no presets."""
        return str(self)

    @cached_property
    def built_task(self) -> Task:
        """The task itself."""
        return make_task(self.task, preset=self.preset or None)[0]

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The task by its settings, and how many tokens an example has."""
        settings = self.built_task.settings.model_dump(mode="json")
        entry = registry("task").find(self.task)
        task = {
            "name": entry.name,
            "version": self.built_task.version,
            "draws": random.VERSION,
            "settings": settings,
            "source": entry.digest,
        }
        return {"version": VERSION, "task": task, "preset": self.preset, "seq_len": self.built_task.seq_len}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the task out: the process that draws builds it again."""
        return {name: value for name, value in self.__dict__.items() if name != "built_task"}

    def __str__(self) -> str:
        return f"{self.task}/{self.preset}" if self.preset else self.task


def plan(
    names: Sequence[str] = (), *, device: str, peer: str | None = None, repeats: int | None = None
) -> list[GeneratorCase]:
    """Return the cases of tasks, each once.

    Args:
        names: TASK for all its presets, or TASK/PRESET. Default: all tasks that linbench ships.
        repeats: draws behind a median. Default: 5 on a CPU, 50 on a GPU.

    Raises UserError: no such task, preset or peer.
    """
    tasks, version = registry("task"), peers.resolve_peer(peer, device, "draws")
    count = repeats or (5 if device == "cpu" else 50)
    shipped = [entry.name for entry in tasks.entries.values() if entry.shipped]
    cases = []
    for text in names or shipped:
        name, preset = split_task(text)
        entry = tasks.find(name)
        presets = entry.cls.presets
        if preset and preset not in presets:
            raise unknown(f"preset of {name}", preset, presets)
        presets_wanted = [preset] if preset else presets or [""]
        cases += [GeneratorCase(entry.name, each, device, version, count) for each in presets_wanted]
    return list(dict.fromkeys(cases))


def precompile(case: GeneratorCase) -> None:
    """Compile everything that the case launches."""
    _draw(case.built_task, 1, case.device)()


def measure(case: GeneratorCase) -> dict[str, Any]:
    """Measure the seconds of an example, drawn in blocks as training draws them.

    Returns:
        `sides`, linbench's and the peer's; on a GPU also the seconds of an example in a single batch of
        `BATCH_TOKENS` tokens (`batch`), and the most bytes that a block takes; `examples` of a block; marks.
    """
    began = sample_load()
    result = _measure_on_cpu(case) if case.device == "cpu" else _measure_on_gpu(case)
    return result | {"marks": marks(began, case.device)}


def _measure_on_cpu(case: GeneratorCase) -> dict[str, Any]:
    task = case.built_task
    count = examples_per_draw(task, "cpu")
    calls: dict[str, Callable[[], Any]] = {OURS: _draw(task, count, "cpu")}
    refused: dict[str, dict[str, str]] = {}
    if case.peer is not None:
        name = case.peer.name
        call, reason = peers.try_build(
            name, case.device, "draws", lambda: peers.build_generator(name, task, count)
        )
        if call is None:
            refused[name] = reason
        else:
            calls[name] = call
    with one_thread():
        seconds = time_as_called(calls, repeats=case.repeats, cuda=False)
    sides = {name: {AS_CALLED: _per_example(spread, count)} for name, spread in seconds.items()}
    return {"examples": count, "sides": sides | refused}


def _measure_on_gpu(case: GeneratorCase) -> dict[str, Any]:
    task = case.built_task
    with torch.cuda.device(case.device):
        block_count = examples_per_draw(task, case.device)
        batch_count = max(1, BATCH_TOKENS // task.seq_len)
        draw_batch, draw_block = (_draw(task, count, case.device) for count in (batch_count, block_count))
        peak = measure_peak_bytes(draw_block)
        batch = time_replayed({"it": draw_batch}, repeats=case.repeats)["it"]
        block = time_replayed({"it": draw_block}, repeats=max(3, case.repeats // 10))["it"]
        hold_load(draw_block, block.median)
    sides: dict[str, dict[str, Any]] = {
        OURS: {
            REPLAYED: _per_example(block, block_count),
            "batch": _per_example(batch, batch_count),
            "peak_bytes": peak,
        }
    }
    if case.peer is not None:
        name = case.peer.name
        sides[name] = {"reason": peers.unavailable_reason(name, case.device, "draws")}
    return {"examples": block_count, "sides": sides}


def _per_example(seconds: Spread, count: int) -> dict[str, Any]:
    return Spread(seconds.median / count, seconds.low / count, seconds.high / count, seconds.calls)._asdict()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as a CPU draws beside a model that trains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _draw(task: Task, count: int, device: str) -> Callable[[], Batch]:
    index, seed = torch.arange(count, device=device), torch.zeros((), dtype=torch.int64, device=device)
    return lambda: task.sample(index, seed=seed, split="train")

"""`bench data`: how fast the examples of tasks are drawn."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from linbench.bench import peers
from linbench.bench.case import Peer, Placed
from linbench.bench.machine import keep_at_work, marks, moment
from linbench.bench.timing import Spread, as_called, peak_bytes, replayed
from linbench.common.errors import unknown
from linbench.engine.batches import at_once
from linbench.experiments.pattern import split_task
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.registry import SHIPPED, registry
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import DRAW
from linbench.tasks import random
from linbench.tasks.base import Batch, Task

VERSION = 1
"""Raised whenever a change to how drawing is measured changes what is found; part of the identity of every
result."""

BATCH_TOKENS = 1 << 18
"""Of the batch that a GPU draws alone."""


@dataclass(frozen=True)
class Drawn(Placed):
    """A task at one of its presets, on a device: where; on a CPU by one thread."""

    kind: ClassVar[str] = DRAW

    task: str
    preset: str
    where: str
    peer: Peer | None = None
    repeats: int = 5

    @property
    def label(self) -> str:
        """TASK/PRESET; TASK where it has no presets."""
        return str(self)

    @cached_property
    def made(self) -> Task:
        """The task itself."""
        return make_task(self.task, preset=self.preset or None)[0]

    @property
    def particulars(self) -> dict[str, Any]:
        """The task by its settings, and how many tokens an example has."""
        settings, entry = self.made.settings.model_dump(mode="json"), registry("task").find(self.task)
        task = {
            "name": entry.name,
            "version": self.made.version,
            "draws": random.VERSION,
            "settings": settings,
            "source": entry.digest,
        }
        return {"version": VERSION, "task": task, "preset": self.preset, "seq_len": self.made.seq_len}

    def __getstate__(self) -> dict[str, Any]:
        """A task is made anew where it is drawn."""
        return {name: value for name, value in self.__dict__.items() if name != "made"}

    def __str__(self) -> str:
        return f"{self.task}/{self.preset}" if self.preset else self.task


def plan(
    names: Sequence[str] = (), *, device: str, peer: str | None = None, repeats: int | None = None
) -> list[Drawn]:
    """TASK: at all its presets; TASK/PRESET: at that; nothing: all that linbench ships; each once. Raises
    UserError: no such task, preset or peer."""
    found, named = registry("task"), peers.named(peer, device, "draws")
    count = repeats or (5 if device == "cpu" else 50)
    wanted = []
    for text in names or [entry.name for entry in found.entries.values() if entry.source == SHIPPED]:
        name, preset = split_task(text)
        entry = found.find(name)
        presets = entry.cls.presets
        if preset and preset not in presets:
            raise unknown(f"preset of {name}", preset, presets)
        wanted += [
            Drawn(entry.name, which, device, named, count)
            for which in ([preset] if preset else presets or [""])
        ]
    return list(dict.fromkeys(wanted))


def compile_all(case: Drawn) -> None:
    """Everything that the case launches."""
    _draw(case.made, 1, case.device)()


def find(case: Drawn) -> dict[str, Any]:
    """Seconds of an example in blocks as training draws them, ours and a peer's; on a GPU also as one of a
    batch of `BATCH_TOKENS` tokens alone, and the bytes that a block takes at most. `examples`: of a block."""
    began = moment()
    found = _on_cpu(case) if case.device == "cpu" else _on_gpu(case)
    return found | {"marks": marks(began, case.device)}


def _on_cpu(case: Drawn) -> dict[str, Any]:
    count = at_once(case.made, "cpu")
    calls: dict[str, Callable[[], Any]] = {OURS: _draw(case.made, count, "cpu")}
    refused = dict[str, dict[str, str]]()
    if case.peer is not None:
        name = case.peer[0]
        call, reason = peers.made_by(name, case.device, "draws", lambda: peers.drawer(name, case.made, count))
        if call is None:
            refused[name] = reason
        else:
            calls[name] = call
    with one_thread():
        seconds = as_called(calls, repeats=case.repeats, cuda=False)
    return {
        "examples": count,
        "sides": {name: {AS_CALLED: _each(found, count)} for name, found in seconds.items()} | refused,
    }


def _on_gpu(case: Drawn) -> dict[str, Any]:
    task = case.made
    with torch.cuda.device(case.device):
        count, few = at_once(task, case.device), max(1, BATCH_TOKENS // task.seq_len)
        alone, many = (_draw(task, examples, case.device) for examples in (few, count))
        peak = peak_bytes(many)
        a_batch, block = (
            replayed({"it": alone}, repeats=case.repeats)["it"],
            replayed({"it": many}, repeats=max(3, case.repeats // 10))["it"],
        )
        keep_at_work(many, block.median)
    ours = {REPLAYED: _each(block, count), "batch": _each(a_batch, few), "peak_bytes": peak}
    lacking = (
        {}
        if case.peer is None
        else {case.peer[0]: {"reason": peers.lacking(case.peer[0], case.device, "draws")}}
    )
    return {"examples": count, "sides": {OURS: ours} | lacking}


def _each(seconds: Spread, count: int) -> dict[str, Any]:
    """Of one example among so many."""
    return Spread(seconds.median / count, seconds.low / count, seconds.high / count, seconds.calls)._asdict()


@contextmanager
def one_thread() -> Iterator[None]:
    """As a CPU draws beside a model that computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _draw(task: Task, count: int, device: str) -> Callable[[], Batch]:
    index, seed = torch.arange(count, device=device), torch.zeros((), dtype=torch.int64, device=device)
    return lambda: task.sample(index, seed=seed, split="train")

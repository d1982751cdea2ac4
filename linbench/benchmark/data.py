"""`bench data`: how fast the examples of tasks are drawn."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from linbench.batches import at_once
from linbench.benchmark import peers
from linbench.benchmark.timing import as_called, peak_bytes, replayed
from linbench.common.errors import unknown
from linbench.plan import make_task
from linbench.registry import SHIPPED, registry
from linbench.tasks.base import Batch, Task

BATCH_TOKENS = 1 << 18
"""Of the batch that a GPU draws alone."""

EXAMPLES = 100_000
"""That the time of one CPU core is given for."""


class Drawn(NamedTuple):
    """A task at one of its presets."""

    task: str
    preset: str

    def __str__(self) -> str:
        return f"{self.task}/{self.preset}"

    def make(self) -> Task:
        """The task itself."""
        return make_task(self.task, preset=self.preset)[0]


def plan(names: Sequence[str] = ()) -> list[Drawn]:
    """TASK: at all its presets; TASK/PRESET: at that; nothing: all that linbench ships; each once. Raises UserError: no such task or preset."""
    found = registry("task")
    wanted = []
    for name in names or [entry.name for entry in found.entries.values() if entry.source == SHIPPED]:
        task, _, preset = name.partition("/")
        presets = found.find(task).cls.presets
        if preset and preset not in presets:
            raise unknown(f"preset of {task}", preset, presets)
        wanted += [Drawn(task, which) for which in ([preset] if preset else presets)]
    return list(dict.fromkeys(wanted))


def run(
    rows: Sequence[Drawn],
    *,
    device: str,
    peer: str | None = None,
    repeats: int | None = None,
    tell: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """All that was found, for JSON; on a CPU with one thread. Raises UserError: there is no such peer, or not on this device."""
    cuda = device != "cpu"
    notes = [_GPU if cuda else _CPU]
    if peer is not None:
        peers.check(peer, device, "draws")
        notes.append(f"Peer: {peers.PEERS[peer].note}")
    found: dict[str, Any] = {"device": device, "peer": peer, "rows": [], "notes": notes}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for row in rows:
            task = row.make()
            shape = {"task": row.task, "preset": row.preset, "seq_len": task.seq_len}
            found["rows"].append(shape | (_on_gpu(task, device, repeats or 50) if cuda else _on_cpu(task, peer, repeats or 5)))
            tell(f"drew {len(found['rows'])}/{len(rows)} {row}")
            keep(found)
    finally:
        torch.set_num_threads(threads)
    return found


def _on_cpu(task: Task, peer: str | None, repeats: int) -> dict[str, Any]:
    """In blocks as training draws them."""
    count = at_once(task, "cpu")
    calls: dict[str, Callable[[], Any]] = {"linbench": _draw(task, count, "cpu")}
    if peer is not None:
        with suppress(ValueError):  # another task than the peer draws: its place in the table stays empty
            calls[peer] = peers.drawer(peer, task, count)
    seconds = {name: found.median / count for name, found in as_called(calls, repeats=repeats, cuda=False).items()}
    own = seconds.pop("linbench")
    speeds = {"examples_per_second": 1 / own, "tokens_per_second": task.seq_len / own, "seconds_of_100k": EXAMPLES * own}
    return speeds if peer not in seconds else speeds | {"peer_seconds_of_100k": EXAMPLES * seconds[peer]}


def _on_gpu(task: Task, device: str, repeats: int) -> dict[str, Any]:
    """A batch alone, and its share of as many as training draws at once."""
    with torch.cuda.device(device):
        count = at_once(task, device)
        alone, many = (_draw(task, examples, device) for examples in (max(1, BATCH_TOKENS // task.seq_len), count))
        peak = peak_bytes(many)
        seconds = replayed({"alone": alone}, repeats=repeats) | replayed({"many": many}, repeats=max(3, repeats // 10))
    share = seconds["many"].median * BATCH_TOKENS / (count * task.seq_len)
    return {"seconds_alone": seconds["alone"].median, "seconds_shared": share, "tokens_per_second": BATCH_TOKENS / share, "peak_bytes": peak}


def _draw(task: Task, count: int, device: str) -> Callable[[], Batch]:
    index, seed = torch.arange(count, device=device), torch.zeros((), dtype=torch.int64, device=device)
    return lambda: task.sample(index, seed=seed, split="train")


def columns(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The table."""
    shown: dict[str, Callable[[dict[str, Any]], str]] = {
        "task": lambda row: str(row["task"]),
        "preset": lambda row: str(row["preset"]),
        "T": lambda row: str(row["seq_len"]),
        "M tokens/s": lambda row: f"{row['tokens_per_second'] / 1e6:,.1f}",
    }
    if found["device"] == "cpu":
        shown |= {"examples/s": lambda row: f"{row['examples_per_second']:,.0f}", "100k, s": lambda row: f"{row['seconds_of_100k']:.2f}"}
        if peer := found.get("peer"):
            shown[f"{peer}, s"] = lambda row: f"{row['peer_seconds_of_100k']:.2f}" if "peer_seconds_of_100k" in row else ""
            shown["ratio"] = lambda row: f"{row['peer_seconds_of_100k'] / row['seconds_of_100k']:.1f}" if "peer_seconds_of_100k" in row else ""
    else:
        shown |= {
            "batch alone, ms": lambda row: f"{row['seconds_alone'] * 1e3:.3f}",
            "as trained, ms": lambda row: f"{row['seconds_shared'] * 1e3:.3f}",
            "peak GB": lambda row: f"{row['peak_bytes'] / 1e9:.1f}",
        }
    return list(shown), [[of(row) for of in shown.values()] for row in found["rows"]]


LEFT = ("task", "preset")

_CPU = "Medians, one thread, in blocks of about 2^19 numbers, as training draws them; 100k: examples."
_GPU = (
    "Medians of replayed graphs. Batch alone: of 2^18 tokens. As trained: its share of 2^25 numbers drawn at once, which is what training does; the "
    "peak is of these."
)

"""Tables of stored speeds of kernels, training steps and the drawing of examples."""

import math
from collections.abc import Callable, Sequence

from linbench.report.style.wording import TIMING, commits, three_digits
from linbench.report.table import ABSENT, NO_VALUE, Cell, Column, Table
from linbench.report.tables import TableKind
from linbench.results.benchmarks import (
    BenchmarkGroup,
    draw_groups,
    kernel_groups,
    kernel_seconds,
    notes,
    seconds_of,
    side_of,
    step_groups,
    tokens_of,
)
from linbench.results.roofline import floors
from linbench.results.schema.benchmarks import (
    DrawResult,
    OperationResult,
    StepResult,
    Timing,
    TimingResult,
)
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import Rate, rate_of

EXAMPLES = 100_000
"""The number of examples whose drawing is shown in seconds."""


def bench_tables(results: Sequence[TimingResult]) -> list[Table]:
    """Return tables of kernels for each shape, of training steps, and of the drawing of examples."""
    steps = step_groups(results)
    in_parts = [bench for bench in steps if any(result.get("parts") for result in bench.results)]
    return [
        *map(_kernels, kernel_groups(results)),
        *map(_steps, steps),
        *map(_parts, in_parts),
        *map(_draws, draw_groups(results)),
    ]


TABLES = TableKind("benchmarks", lambda data: bench_tables(data.benchmarks), order=40, source="speeds")

Cells = dict[str, Cell]
"""The cells of a row by column."""

PEAK = "peak_bytes"
"""The peak of memory, where a quantity is named that is no timing."""

TEXT_COLUMNS = frozenset({"operation", "model", "task", "preset", "notes"})
"""Columns of these tables that hold text."""


def _table(title: str, rows: Sequence[Cells], note: str, bench: BenchmarkGroup[TimingResult]) -> Table:
    """Return a table without the columns in which no row has a value."""
    names = [name for name in rows[0] if any(row[name].text not in ("", ABSENT) for row in rows)]
    peers = dict.fromkeys(words for result in bench.results if (words := result.get("of_peer")))
    return Table(
        title,
        tuple(Column(name, numeric=name not in TEXT_COLUMNS) for name in names),
        tuple(tuple(row[name] for name in names) for row in rows),
        " ".join([note, *peers, *_outdated(bench), f"Code: {commits(bench.results)}."]),
        bench.slug,
    )


def _outdated(bench: BenchmarkGroup[TimingResult]) -> list[str]:
    """Return the sentence on rows that are left out; none where there are none."""
    return [f"Left out, as they were measured with older kernels: {', '.join(bench.outdated)}."] * bool(
        bench.outdated
    )


def _kernels(bench: BenchmarkGroup[OperationResult]) -> Table:
    rows = [
        {"operation": Cell(result["label"])} | _of_kernel(result, bench.peers) for result in bench.results
    ]
    note = (
        f"{TIMING[AS_CALLED]} Forward saves what backward needs. 'of a call' is the share of forward and"
        " backward that a Python function takes which allocates output and gradients and computes nothing;"
        f" one like it stands before every Triton kernel. 'device': {_lower(TIMING[REPLAYED])} 'of bytes'"
        " and 'of arithmetic' are the least possible time over the measured time: for bytes, to read the"
        " inputs in both passes and to write and read output and gradients once, at the bandwidth of a"
        " copy; for arithmetic, the least matrix products, at the rate of one. Both rates were measured in"
        " the same run. 'peak' is that of forward and backward beyond the inputs. 'x' is the peer's time"
        " over linbench's."
    )
    rates = [
        f"Copy {best['bytes_per_second'] / 1e9:,.0f} GB/s, product {best['flops_per_second'] / 1e12:,.2f}"
        " TFLOP/s."
        for best in [result["ceilings"] for result in bench.results if result["ceilings"]][:1]
    ]
    sums = [
        _summary(bench, peer, quantity) for peer in bench.peers for quantity in (AS_CALLED, REPLAYED, PEAK)
    ]
    return _table(
        f"Kernels, forward and backward, milliseconds: {bench.about}",
        rows,
        " ".join(filter(None, [note, *rates, *sums])),
        bench,
    )


def _of_kernel(result: OperationResult, peers: Sequence[str]) -> Cells:
    def ms(side: str, passes: str, timing: str) -> Cell:
        return _milliseconds(kernel_seconds(result, side, passes, timing))

    def peak(side: str) -> Cell:
        return _optional(result["sides"].get(side, {}).get("peak_bytes"), _mib)

    least, cold, bare = floors(result), result.get("cold_call"), result.get("bare")
    called = seconds_of(result, OURS, AS_CALLED)
    alone = seconds_of(result, OURS, REPLAYED) or called
    shown: Cells = {
        "forward": ms(OURS, "forward", AS_CALLED),
        "fwd+bwd": ms(OURS, "both", AS_CALLED),
        "of a call": _share(bare["median"] if bare else None, called),
        "device fwd": ms(OURS, "forward", REPLAYED),
        "device fwd+bwd": ms(OURS, "both", REPLAYED),
        "of bytes": _share(least.get("bytes"), alone),
        "of arithmetic": _share(least.get("flops"), alone),
        "peak MiB": peak(OURS),
        "first call, s": _optional(cold, lambda seconds: f"{seconds:.1f}"),
    }
    for peer in peers:
        shown |= {
            f"{peer} fwd+bwd": ms(peer, "both", AS_CALLED),
            "x" if len(peers) == 1 else f"x {peer}": _ratio(result, peer, AS_CALLED),
            f"{peer} device": ms(peer, "both", REPLAYED),
            f"x device {peer}" if len(peers) > 1 else "x device": _ratio(result, peer, REPLAYED),
            f"{peer} peak MiB": peak(peer),
        }
    for side in (OURS, *peers):
        name, measured = "" if side == OURS else f"{side} ", result["sides"].get(side, {})
        shown |= {
            f"{name}error": _optional(measured.get("error"), _error),
            f"{name}gradients": _optional(measured.get("gradient_error"), _error),
        }
    return shown | {"notes": Cell(notes(result))}


def _steps(bench: BenchmarkGroup[StepResult]) -> Table:
    rows = []
    for result in bench.results:
        ours = seconds_of(result, OURS, AS_CALLED)
        row: Cells = {
            "model": Cell(result["label"]),
            "replicas": _count(result["bench"]["replicas"]),
            "step, ms": _milliseconds(ours),
            "M tokens/s": _millions(rate_of(ours, tokens_of(result))),
            "peak MiB": _optional(side_of(result, OURS).get("peak_bytes"), _mib),
        }
        for peer in bench.peers:
            theirs = seconds_of(result, peer, AS_CALLED)
            row |= {
                f"{peer}, ms": _milliseconds(theirs),
                f"{peer}, M tokens/s": _millions(rate_of(theirs, tokens_of(result))),
            }
            row |= {"x": _ratio(result, peer, AS_CALLED)}
        rows.append(row | {"notes": Cell(notes(result))})
    note = (
        "Medians over windows of many steps, ± half the distance from the slowest fifth to the fastest;"
        " wall-clock time until the device is done. A step draws a batch and takes forward, the loss at"
        " labelled positions, backward, clipping and AdamW; on a GPU it is captured and replayed. The task"
        " is MQAR with vocabulary 8192 and T/16 pairs, the model two layers with heads of 64 and no channel"
        " mixer. 'x' is the peer's time over linbench's."
    )
    return _table(f"Training steps: {bench.about}", rows, note, bench)


def _parts(bench: BenchmarkGroup[StepResult]) -> Table:
    measured = [(result, parts) for result in bench.results if (parts := result.get("parts"))]
    kinds = sorted(
        {kind for _, parts in measured for kind in parts},
        key=lambda kind: -sum(parts.get(kind, 0.0) for _, parts in measured),
    )
    rows = [
        {
            "model": Cell(result["label"]),
            "replicas": _count(result["bench"]["replicas"]),
        }
        | {kind: _microseconds(parts.get(kind)) for kind in kinds}
        | {"in all": _microseconds(sum(parts.values()))}
        for result, parts in measured
    ]
    note = "Device time of kernels by their purpose, in a step that is not captured."
    title = f"Where the time of a training step goes, microseconds: {bench.about}"
    shown = tuple(result for result, _ in measured)
    return _table(title, rows, note, bench._replace(slug=f"parts-{bench.slug}", results=shown))


def _draws(bench: BenchmarkGroup[DrawResult]) -> Table:
    rows = []
    for result in bench.results:
        timing = AS_CALLED if result["bench"]["device"] == "cpu" else REPLAYED
        ours, batch = seconds_of(result, OURS, timing), seconds_of(result, OURS, "batch")
        row: Cells = {
            "task": Cell(result["bench"]["task"]["name"]),
            "preset": Cell(result["bench"]["preset"] or ""),
            "T": _count(result["bench"]["seq_len"]),
            "M tokens/s": _millions(rate_of(ours, tokens_of(result))),
            "100k examples, s": _seconds(ours, EXAMPLES),
            "in a batch alone, M tokens/s": _millions(rate_of(batch, tokens_of(result))),
            "peak MiB": _optional(side_of(result, OURS).get("peak_bytes"), _mib),
        }
        for peer in bench.peers:
            row |= {
                f"{peer}, 100k, s": _seconds(seconds_of(result, peer, timing), EXAMPLES),
                "x": _ratio(result, peer, timing),
            }
        rows.append(row | {"notes": Cell(notes(result))})
    note = (
        "Medians, ± half the distance from the slowest fifth to the fastest. Examples are drawn in blocks,"
        " as in training: about 2^19 numbers by one thread of a CPU, and 2^25 on a GPU, replayed from a"
        " CUDA graph. 'peak' is that of a block. A batch alone has 2^18 tokens. 'x' is the peer's time over"
        " linbench's."
    )
    return _table(f"Drawing examples: {bench.about}", rows, note, bench)


def _summary(bench: BenchmarkGroup[OperationResult], peer: str, quantity: str) -> str:
    """Return how many times as fast as a peer linbench is, over all operations."""
    found = {
        result["label"]: ratio
        for result in bench.results
        if (ratio := _ratio(result, peer, quantity).number) is not None
    }
    if not found:
        return ""
    least = min(found, key=found.__getitem__)
    mean = math.exp(sum(map(math.log, found.values())) / len(found))
    words = {AS_CALLED: "as called", REPLAYED: "on the device", PEAK: "in peak memory"}[quantity]
    return f"{peer} / ours {words}: geometric mean {mean:.2f}, least {found[least]:.2f} ({least})."


def _ratio(result: TimingResult, peer: str, quantity: str) -> Cell:
    """Return what a peer takes over what linbench takes: peak bytes, or the medians of a timing."""
    theirs, ours = (_number(result, side, quantity) for side in (peer, OURS))
    if theirs is None or not ours:
        return NO_VALUE
    return Cell(f"{theirs / ours:.2f}", theirs / ours)


def _number(result: TimingResult, side: str, quantity: str) -> float | None:
    if quantity == PEAK:
        return side_of(result, side).get("peak_bytes")
    seconds = seconds_of(result, side, quantity)
    return None if seconds is None else seconds["median"]


def _optional(value: float | None, words: Callable[[float], str]) -> Cell:
    """Return the cell of a value that may not have been measured."""
    return NO_VALUE if value is None else Cell(words(value), value)


def _share(floor: float | None, seconds: Timing | None) -> Cell:
    """Return how much of the measured seconds the least possible ones are."""
    if not floor or seconds is None:
        return NO_VALUE
    share = floor / seconds["median"]
    return Cell(f"{share:.0%}", share)


def _count(number: int) -> Cell:
    return Cell(f"{number:,}", number)


def _milliseconds(seconds: Timing | None) -> Cell:
    if seconds is None:
        return NO_VALUE
    spread = (seconds["high"] - seconds["low"]) / 2 / seconds["median"]
    return Cell(f"{three_digits(1e3 * seconds['median'])} ± {spread:.0%}", 1e3 * seconds["median"])


def _seconds(each: Timing | None, count: int) -> Cell:
    if each is None:
        return NO_VALUE
    return Cell(three_digits(count * each["median"]), count * each["median"])


def _millions(rate: Rate | None) -> Cell:
    if rate is None:
        return NO_VALUE
    return Cell(f"{three_digits(rate.median / 1e6)} ± {rate.spread:.0%}", rate.median / 1e6)


def _microseconds(seconds: float | None) -> Cell:
    return NO_VALUE if seconds is None else Cell(f"{1e6 * seconds:,.0f}", 1e6 * seconds)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f}"


def _error(error: float) -> str:
    return f"{error:.1e}"


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]

"""Stored speeds of kernels, training steps and the drawing of examples, grouped for tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from linbench.common.files import file_name
from linbench.results.kernel_changes import newest_versions, older_reason
from linbench.results.schema.benchmarks import (
    DrawResult,
    KernelShape,
    KernelSide,
    OperationResult,
    Side,
    StepResult,
    Timing,
    TimingResult,
)
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import latest, machine_of
from linbench.results.store import DRAW, OPERATION, STEP

ResultT = TypeVar("ResultT", bound=TimingResult)
ResultT_co = TypeVar("ResultT_co", bound=TimingResult, covariant=True)

NAMES = {OPERATION: "kernels", STEP: "steps", DRAW: "draws"}
"""Names of the figures by kind of result."""


class BenchmarkGroup(NamedTuple, Generic[ResultT_co]):
    """Results of one kind that may stand in one table.

    Attributes:
        about: the shape, precision and machine that all have in common.
        slug: a name for files.
        results: one for each row of the table.
        outdated: the rows that are left out, as their kernels are older than those of others.
    """

    kind: str
    about: str
    slug: str
    results: tuple[ResultT_co, ...]
    outdated: tuple[str, ...] = ()

    @property
    def peers(self) -> list[str]:
        """Names of the peers that any result was measured beside."""
        sides = [side for result in self.results for side in result["sides"]]
        return [side for side in dict.fromkeys(sides) if side != OURS]


def kernel_groups(results: Iterable[TimingResult]) -> list[BenchmarkGroup[OperationResult]]:
    """Return the results of kernels, grouped by shape, precision and machine."""
    return _groups(
        OPERATION,
        [result for result in results if result["kind"] == OPERATION],
        about=_shape_and_machine,
        row=lambda result: result["label"],
        order=lambda result: result["label"],
    )


def step_groups(results: Iterable[TimingResult]) -> list[BenchmarkGroup[StepResult]]:
    """Return the results of training steps, grouped by shape, precision and machine."""
    return _groups(
        STEP,
        [result for result in results if result["kind"] == STEP],
        about=_shape_and_machine,
        row=lambda result: f"{result['label']} {result['bench']['model']} {result['bench']['replicas']}",
        order=lambda result: (result["label"], result["bench"]["replicas"]),
    )


def draw_groups(results: Iterable[TimingResult]) -> list[BenchmarkGroup[DrawResult]]:
    """Return the results of drawing examples, grouped by machine."""
    return _groups(
        DRAW,
        [result for result in results if result["kind"] == DRAW],
        about=_drawing_machine,
        row=lambda result: result["label"],
        order=lambda result: (result["label"], result["bench"]["seq_len"]),
    )


def benchmark_groups(results: Iterable[TimingResult], kind: str) -> Sequence[BenchmarkGroup[TimingResult]]:
    """Return the results of one kind, grouped into what one table may hold."""
    if kind == OPERATION:
        return kernel_groups(results)
    return step_groups(results) if kind == STEP else draw_groups(results)


def _groups(
    kind: str,
    results: Iterable[ResultT],
    *,
    about: Callable[[ResultT], str],
    row: Callable[[ResultT], str],
    order: Callable[[ResultT], str | tuple[str, int]],
) -> list[BenchmarkGroup[ResultT]]:
    """Group results by `about`. Of several results of one `row` the `latest` one is taken.

    What was measured with older kernels than others of its group is left out.
    """
    groups: dict[str, dict[str, list[ResultT]]] = {}
    for result in results:
        groups.setdefault(about(result), {}).setdefault(row(result), []).append(result)
    found = []
    for words, rows in sorted(groups.items()):
        every = sorted((latest(members) for members in rows.values()), key=order)
        newest = newest_versions(every)
        shown = tuple(one for one in every if older_reason(one, newest) is None)
        old = tuple(one["label"] for one in every if older_reason(one, newest))
        found.append(BenchmarkGroup(kind, words, file_name(f"{NAMES[kind]} {words}"), shown, old))
    return found


def _shape_and_machine(result: OperationResult | StepResult) -> str:
    bench = result["bench"]
    return f"{shape_words(bench['shape'])}, {bench['precision']}, {machine_of(result)}"


def _drawing_machine(result: DrawResult) -> str:
    name = result["environment"]["device"]["name"]
    return f"{name}, one thread" if result["bench"]["device"] == "cpu" else name


def shape_words(shape: KernelShape) -> str:
    """Return a shape in words, such as B256xT256xH2xD64."""
    heads = f"xH{shape['H']}" if "H" in shape else ""
    return f"B{shape['B']}xT{shape['T']}{heads}xD{shape['D']}"


def side_of(result: TimingResult, side: str) -> Side | KernelSide:
    """Return what was measured of linbench's side or a peer's; empty if nothing was."""
    if result["kind"] == OPERATION:
        return result["sides"].get(side, {})
    return result["sides"].get(side, {})


def seconds_of(result: TimingResult, side: str, timing: str) -> Timing | None:
    """Return the seconds of a call of one side; None if it was not timed that way.

    Args:
        timing: `as_called`, `replayed` or `batch`. For a kernel the call is forward and backward.
    """
    if result["kind"] == OPERATION:
        return kernel_seconds(result, side, "both", timing)
    measured = result["sides"].get(side, {})
    if timing == AS_CALLED:
        return measured.get("as_called")
    return measured.get("replayed") if timing == REPLAYED else measured.get("batch")


def kernel_seconds(result: OperationResult, side: str, passes: str, timing: str) -> Timing | None:
    """Return the seconds of a kernel's call; None if it was not timed that way.

    Args:
        passes: `forward` or `both`, with the backward pass.
        timing: `as_called` or `replayed`.
    """
    measured = result["sides"].get(side, {})
    timings = (measured.get("forward") if passes == "forward" else measured.get("both")) or {}
    return timings.get("as_called") if timing == AS_CALLED else timings.get("replayed")


def tokens_of(result: TimingResult) -> int:
    """Return the number of tokens in a call, in a step of all replicas, or in an example."""
    if result["kind"] == DRAW:
        return result["bench"]["seq_len"]
    shape = result["bench"]["shape"]
    replicas = result["bench"]["replicas"] if result["kind"] == STEP else 1
    return shape["B"] * shape["T"] * replicas


def notes(result: TimingResult) -> str:
    """Return what went wrong or is in doubt, on linbench's side and on peers'."""
    words = [*result["marks"]] if result["status"] == "ok" else [f"{result['status']}: {result['reason']}"]
    for side in result["sides"]:
        measured = side_of(result, side)
        said = [text for text in (measured.get("reason"), measured.get("note")) if text]
        words += said if side == OURS else [f"{side}: {text}" for text in said]
    return "; ".join(words)

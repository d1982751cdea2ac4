"""`bench ops`: which operations at which shapes."""

import os
from collections.abc import Callable, Sequence

from linbench.benchmark import peers
from linbench.benchmark.kernel import Kernel, cold_call
from linbench.benchmark.operations import OPERATIONS, SHAPES, Shape
from linbench.benchmark.presets import Preset
from linbench.common.errors import unknown
from linbench.precision import pick_precision
from linbench.record import Result
from linbench.store import Store
from linbench.workers import outcomes


def shapes_of(preset: Preset) -> tuple[Shape, ...]:
    """A preset's, a shape for each length."""
    return tuple(Shape(preset.batch(length), length, preset.heads, preset.d_model // preset.heads) for length in preset.lengths)


def plan(
    *, device: str, operations: Sequence[str] = (), shapes: Sequence[Shape] = (), dtype: str | None = None, peer: str | None = None, repeats: int | None = None
) -> list[Kernel]:
    """The cases, shape by shape. Raises UserError: a name that is not there. A peer that cannot be had is told in every row."""
    kind = device.partition(":")[0]
    for name in operations:
        if name not in OPERATIONS:
            raise unknown("operation", name, OPERATIONS)
    precision, named = pick_precision(dtype, device), peers.named(peer, device, "operations")
    repeats = repeats or (20 if kind == "cpu" else 100)
    return [Kernel(name, shape, precision, device, named, repeats) for shape in shapes or SHAPES[kind] for name in operations or OPERATIONS]


def add_cold_calls(cases: Sequence[Kernel], found: Sequence[Result], store: Store, *, again: bool, tell: Callable[[str], None]) -> None:
    """To each result without, or to all `again`, `cold_call`: seconds of the first forward and backward in a fresh process with an empty cache, compilation
    included."""
    workers = max(1, min(4, (os.cpu_count() or 1) // 4))
    wanted = [place for place, result in enumerate(found) if again or result.get("cold_call") is None]
    for which, outcome in outcomes(cold_call, [cases[place].alone for place in wanted], workers=workers, seconds=Kernel.seconds, fresh=True):
        place = wanted[which]
        found[place]["cold_call"] = outcome.value
        store.put(found[place])
        tell(f"first call of {cases[place]}: {outcome.failure or f'{outcome.value:.1f} s'}")

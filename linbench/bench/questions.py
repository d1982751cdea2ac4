"""The call of a layer that answers each question of a benchmark."""

from typing import Any

from linbench.bench import layer_timing, memory
from linbench.bench.decode import decode_call
from linbench.bench.layer import LayerCase, MakeCall, kernel_context, training_call
from linbench.bench.machine import marks, sample_load
from linbench.bench.prefill import prefill_call

CALLS: dict[str, MakeCall] = {
    "train": training_call,
    "prefill": prefill_call,
    "decode": decode_call,
    "memory": training_call,
}


def precompile(case: LayerCase) -> float:
    """Compile everything that the case launches, and return the seconds of linbench's first call."""
    return layer_timing.precompile(case, CALLS[case.question])


def measure(case: LayerCase) -> dict[str, Any]:
    """Measure seconds, or bytes if the question is memory. Raises what the layer raises."""
    with kernel_context(case):
        if case.question == "memory":
            return memory.measure(case)
        began = sample_load()
        return layer_timing.time_sides(case, CALLS[case.question]) | {"marks": marks(began, case.device)}

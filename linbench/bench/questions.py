"""How what is asked of a layer is found."""

from typing import Any

from linbench.bench import memory
from linbench.bench.decode import token
from linbench.bench.layer import Case, Make, compiled, computing, timed, training
from linbench.bench.machine import marks, moment
from linbench.bench.prefill import prompt

CALLS: dict[str, Make] = {"train": training, "prefill": prompt, "decode": token, "memory": training}


def compile_all(case: Case) -> float:
    """Everything that the case launches. Seconds of our first call."""
    return compiled(case, CALLS[case.question])


def find(case: Case) -> dict[str, Any]:
    """Seconds or bytes. Raises what the layer raises."""
    with computing(case):
        if case.question == "memory":
            return memory.measure(case)
        began = moment()
        return timed(case, CALLS[case.question]) | {"marks": marks(began, case.device)}

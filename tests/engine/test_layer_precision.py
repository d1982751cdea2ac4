"""The mode that tells which precision a layer computes in."""

import torch

from linbench.engine.layer_precision import Witness
from tests.helpers.processes import imported


def test_the_coarsest_dtype_between_input_and_output_is_noted() -> None:
    x, constant = torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.bfloat16)
    watched = Witness([x])
    with watched:
        y = (x + constant.double()).float() * 2
    assert (y.dtype, watched.coarsest) == (torch.float32, torch.float32)


def test_watching_loads_no_compiler() -> None:
    """It takes seconds, which `linbench check` and every run of a layer of one's own would wait for."""
    program = (
        "import torch\n"
        "from linbench.bench.memory import AllocationTracker\n"
        "from linbench.engine.layer_precision import Witness\n"
        "x = torch.ones(2, 2)\n"
        "with Witness([x]), AllocationTracker():\n"
        "    torch.nn.functional.linear(x, x)\n"
    )
    assert imported(program, "torch._dynamo") == set()

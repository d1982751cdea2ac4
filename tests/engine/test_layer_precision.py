"""The mode that tells which precision a layer computes in."""

import subprocess
import sys

import torch

from linbench.engine.layer_precision import Witness


def test_the_coarsest_dtype_between_input_and_output_is_noted() -> None:
    x, constant = torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.bfloat16)
    watched = Witness([x])
    with watched:
        y = (x + constant.double()).float() * 2
    assert (y.dtype, watched.coarsest) == (torch.float32, torch.float32)


def test_watching_loads_no_compiler() -> None:
    """It takes seconds, which `linbench check` and every run of a layer of one's own would wait for."""
    script = (
        "import sys, torch\n"
        "from linbench.bench.memory import AllocationTracker\n"
        "from linbench.engine.layer_precision import Witness\n"
        "x = torch.ones(2, 2)\n"
        "with Witness([x]), AllocationTracker():\n"
        "    torch.nn.functional.linear(x, x)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"

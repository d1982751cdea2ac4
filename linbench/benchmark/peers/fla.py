"""flash-linear-attention 0.6: log decays in float32, q and k normalised before, no final state."""

import os
from collections.abc import Callable
from typing import Any

from torch import Tensor

from linbench.benchmark.peers import Calls

_WARM_UP_MS, _TUNING_MS = 5, 20


def calls(compiling: bool) -> Calls:
    """Its chunked form of every recurrence."""
    prepare(compiling)
    from fla import ops

    def output(function: Callable[..., Any], *names: str, **more: Any) -> Callable[[dict[str, Tensor]], Tensor]:
        def call(x: dict[str, Tensor]) -> Tensor:
            o: Tensor = function(*(x[name] for name in names), **more)[0]
            return o

        return call

    def rwkv7(x: dict[str, Tensor]) -> Tensor:
        o: Tensor = ops.chunk_rwkv7(x["q"], x["log_decay"], x["k"], x["v"], x["a"], x["b"], scale=x["q"].shape[-1] ** -0.5)[0]
        return o

    qkv = ("q", "k", "v")
    return {
        "linear_attention": output(ops.chunk_linear_attn, *qkv, normalize=False),
        "scalar_decay": output(ops.chunk_simple_gla, *qkv, "log_decay"),
        "gla": output(ops.chunk_gla, *qkv, "log_decay"),
        "rwkv6": output(ops.chunk_rwkv6, *qkv, "log_decay", "bonus"),
        "deltanet": output(ops.chunk_delta_rule, *qkv, "beta"),
        "gated_deltanet": output(ops.chunk_gated_delta_rule, *qkv, "log_decay", "beta"),
        "gated_deltaproduct": output(_delta_product(), *qkv, "log_decay", "beta", num_householder=2),
        "comba": output(ops.chunk_comba, *qkv, "erase_key", "log_decay", "beta"),
        "kda": output(ops.chunk_kda, *qkv, "log_decay", "beta"),
        "rwkv7": rwkv7,
    }


def prepare(compiling: bool) -> None:
    """Before fla is first used: what it refuses here is timed all the same, and tuning is short."""
    os.environ["FLA_CACHE_RESULTS"] = "0"  # read when fla is imported: what was tuned beside other work must not be believed later
    _lift_guard()
    _tune_briefly(compiling)


def _delta_product() -> Any:
    from fla.ops.gated_delta_product import chunk_gated_delta_product

    return chunk_gated_delta_product


def _lift_guard() -> None:
    """`chunk_bwd_dqkwg` raises for scalar gates on Hopper with Triton 3.4 to 3.7.0; this constant decides it."""
    from fla.ops.common import chunk_o

    chunk_o.TRITON_ABOVE_3_7_1 = True


def _tune_briefly(compiling: bool) -> None:
    """Each of the hundreds of configurations runs for 20 ms, or only once when it is about compiling them."""
    from triton import testing
    from triton.runtime.autotuner import Autotuner

    def bench(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
        if compiling:
            call()
            return [1.0] * len(quantiles or [0.5])
        return testing.do_bench(call, warmup=_WARM_UP_MS, rep=_TUNING_MS, quantiles=quantiles)

    Autotuner.do_bench = property(lambda self: bench, lambda self, other: None)

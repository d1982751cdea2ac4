"""The torch fallback of transformers."""

import inspect
from typing import Any

from torch import Tensor

from linbench.benchmark.peers import Calls


def calls(compiling: bool) -> Calls:
    """Gated DeltaNet. The function itself, not the wrapper that would prefer flash-linear-attention where that is installed."""
    from transformers.models.qwen3_next import modeling_qwen3_next

    chunked: Any = inspect.unwrap(modeling_qwen3_next.torch_chunk_gated_delta_rule)

    def gated_deltanet(x: dict[str, Tensor]) -> Tensor:
        o: Tensor = chunked(x["q"], x["k"], x["v"], g=x["log_decay"], beta=x["beta"])[0]
        return o

    return {"gated_deltanet": gated_deltanet}

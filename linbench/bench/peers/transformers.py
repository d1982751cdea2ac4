"""The torch fallback of transformers."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from linbench.bench.layer import Case
from linbench.bench.layer_side import Side, random_tokens
from linbench.bench.peers import Calls, LacksError
from linbench.models.blocks.heads import head_dims


def calls(compiling: bool) -> Calls:
    """Gated DeltaNet. The function itself, not the wrapper that would prefer flash-linear-attention where
    that is installed."""
    from transformers.models.qwen3_next import modeling_qwen3_next

    chunked: Any = inspect.unwrap(modeling_qwen3_next.torch_chunk_gated_delta_rule)

    def gated_deltanet(x: dict[str, Tensor]) -> Tensor:
        o: Tensor = chunked(x["q"], x["k"], x["v"], g=x["log_decay"], beta=x["beta"])[0]
        return o

    return {"gated_deltanet": gated_deltanet}


def layer(case: Case, compiling: bool) -> Side:
    """Qwen3-Next's Gated DeltaNet of the case's sizes, in its torch form. Raises LacksError: another model,
    or not as published."""
    if case.mixer != "gated_deltanet" or case.cell.model.form != "native":
        raise LacksError("has Gated DeltaNet only, as published")
    from transformers import DynamicCache, Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    settings: Any = case.settings
    key_dim, value_dim = head_dims(settings, case.width)
    config = Qwen3NextConfig(
        hidden_size=case.width,
        linear_num_key_heads=settings.heads,
        linear_num_value_heads=settings.heads,
        linear_key_head_dim=key_dim,
        linear_value_head_dim=value_dim,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"):
        setattr(qwen, name, inspect.unwrap(getattr(qwen, name)))
    module = qwen.Qwen3NextGatedDeltaNet(config, layer_idx=0)

    def empty() -> Any:
        return DynamicCache(config=config)

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        cache = empty()
        module(random_tokens(batch, context, case.width, like=next(module.parameters())), cache_params=cache)
        return lambda x: module(x, cache_params=cache)

    return Side(module, module, lambda x: module(x, cache_params=empty()), after)

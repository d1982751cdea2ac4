"""Gated DeltaNet of transformers, in the torch form that it falls back to."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from linbench.bench.layer import LayerCase
from linbench.bench.layer_side import Side, random_tokens
from linbench.bench.peer import OperationCalls, Peer, UnsupportedByPeerError
from linbench.models.blocks.heads import head_dims


def operations(compiling: bool) -> OperationCalls:
    """Return its chunked Gated DeltaNet.

    It is unwrapped: the wrapper would call flash-linear-attention if that is installed.
    """
    from transformers.models.qwen3_next import modeling_qwen3_next

    chunked: Any = inspect.unwrap(modeling_qwen3_next.torch_chunk_gated_delta_rule)

    def gated_deltanet(x: dict[str, Tensor]) -> Tensor:
        o: Tensor = chunked(x["q"], x["k"], x["v"], g=x["log_decay"], beta=x["beta"])[0]
        return o

    return {"gated_deltanet": gated_deltanet}


def layer(case: LayerCase, compiling: bool) -> Side:
    """Build Qwen3-Next's Gated DeltaNet of the case's sizes, in its torch form.

    Raises UnsupportedByPeerError: another model, or not in its native form.
    """
    if case.mixer != "gated_deltanet" or case.cell.model.form != "native":
        raise UnsupportedByPeerError("has Gated DeltaNet only, as published")
    if getattr(case.settings, "share_kv", False):
        raise UnsupportedByPeerError("has projections of keys and of values")
    from transformers import DynamicCache, Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    settings: Any = case.settings
    key_dim, value_dim = head_dims(settings, case.width)
    config = Qwen3NextConfig(
        hidden_size=case.width,
        linear_num_key_heads=settings.key_heads or settings.heads,
        linear_num_value_heads=settings.heads,
        linear_key_head_dim=key_dim,
        linear_value_head_dim=value_dim,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"):
        setattr(qwen, name, inspect.unwrap(getattr(qwen, name)))
    module = qwen.Qwen3NextGatedDeltaNet(config, layer_idx=0)

    def prefill(x: Tensor) -> Any:
        return module(x, cache_params=DynamicCache(config=config))

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        cache = DynamicCache(config=config)
        tokens = random_tokens(batch, context, case.width, like=next(module.parameters()))
        module(tokens, cache_params=cache)
        return lambda x: module(x, cache_params=cache)

    return Side(module, module, prefill, after)


PEER = Peer(
    name="transformers",
    package="transformers",
    distribution="transformers",
    runs_on=("cpu", "cuda"),
    note=(
        "transformers: the torch form of Qwen3-Next's gated delta rule, which it uses where"
        " flash-linear-attention is not installed."
    ),
    operations=operations,
    layer=layer,
)

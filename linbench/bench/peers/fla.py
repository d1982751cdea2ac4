"""flash-linear-attention 0.6: log decays in float32, q and k normalised before, no final state; and its
layers, as published."""

import inspect
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from linbench.bench.layer import Case
from linbench.bench.layer_side import Side, random_tokens
from linbench.bench.peers import Calls, LacksError
from linbench.models.blocks.heads import head_dims

_WARM_UP_MS, _TUNING_MS = 5, 20


def calls(compiling: bool) -> Calls:
    """Its chunked form of every recurrence."""
    prepare(compiling)
    from fla import ops

    def output(
        function: Callable[..., Any], *names: str, **more: Any
    ) -> Callable[[dict[str, Tensor]], Tensor]:
        def call(x: dict[str, Tensor]) -> Tensor:
            o: Tensor = function(*(x[name] for name in names), **more)[0]
            return o

        return call

    def rwkv7(x: dict[str, Tensor]) -> Tensor:
        o: Tensor = ops.chunk_rwkv7(
            x["q"], x["log_decay"], x["k"], x["v"], x["a"], x["b"], scale=x["q"].shape[-1] ** -0.5
        )[0]
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


LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear_attention": ("LinearAttention", {"feature_map": "elu"}),
    "retnet": ("MultiScaleRetention", {}),
    "gla": ("GatedLinearAttention", {}),
    "hgrn2": ("HGRN2Attention", {}),
    "rwkv6": ("RWKV6Attention", {}),
    "rwkv7": ("RWKV7Attention", {}),
    "deltanet": ("DeltaNet", {}),
    "gated_deltanet": ("GatedDeltaNet", {}),
    "deltaproduct": ("GatedDeltaProduct", {"use_forget_gate": False}),
    "gated_deltaproduct": ("GatedDeltaProduct", {}),
    "comba": ("Comba", {}),
    "kda": ("KimiDeltaAttention", {}),
    "fox": ("ForgettingAttention", {}),
}
"""Its class for a model of ours, with what is not its default. Its Mamba-2 needs mamba_ssm, its softmax
flash-attn."""

_GROWING = ("fox",)
"""Layers with a cache, which every call makes longer; no state of the others grows."""

_LONG_ENOUGH = 256
"""Tokens before the one that is decoded, where no state grows."""


def layer(case: Case, compiling: bool) -> Side:
    """Its layer of the case's sizes. Raises LacksError: it has none, or only as published."""
    if case.mixer not in LAYERS:
        raise LacksError(f"has no layer {case.mixer}")
    if case.cell.model.form != "native":
        raise LacksError("has layers as published; --form native compares them")
    prepare(compiling)
    name, more = LAYERS[case.mixer]
    settings: Any = case.settings
    key_dim, value_dim = head_dims(settings, case.width)
    sizes = {
        "hidden_size": case.width,
        "num_heads": settings.heads,
        "head_dim": key_dim,
        "expand_k": settings.heads * key_dim / case.width,
    }
    ratios = {
        "expand_v": settings.heads * value_dim / case.width,
        "expand_v of head_dim": value_dim / key_dim,
        "expand_ratio": key_dim,
    }
    own = {
        ours: getattr(settings, theirs, None)
        for ours, theirs in (("allow_neg_eigval", "neg_eigval"), ("num_householder", "steps"))
    }
    given = {argument: value for argument, value in own.items() if value is not None}
    module = built(
        name, **sizes, **ratios, **given, **_normalised(settings), layer_idx=0, num_hidden_layers=2, **more
    )

    def carried(x: Tensor, cache: Any) -> Tensor:
        y: Tensor = module(x, past_key_values=cache, use_cache=True)[0]
        return y

    def empty() -> Any:
        from fla.models.utils import Cache

        return Cache()

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        if case.mixer in _GROWING:
            raise LacksError(
                "has a cache that every token makes longer: it cannot be asked again and again from the same"
            )
        cache = empty()
        carried(
            random_tokens(batch, min(context, _LONG_ENOUGH), case.width, like=next(module.parameters())),
            cache,
        )
        return lambda x: carried(x, cache)

    return Side(module, lambda x: module(x)[0], lambda x: carried(x, empty()), after)


def _normalised(settings: Any) -> dict[str, Any]:
    """What its linear attention divides by, and the norm that it has in its place unless it is told
    otherwise."""
    if not hasattr(settings, "normalise"):
        return {}
    return {
        "do_feature_map_norm": settings.normalise,
        "output_norm": "rmsnorm" if settings.output_norm == "rms" else "identity",
    }


def built(name: str, **offered: Any) -> nn.Module:
    """A layer with those of the arguments that its constructor names. Where heads have a dimension of their
    own and no `expand_k`, values are as many times as wide as `expand_v of head_dim` says."""
    from fla import layers

    cls = getattr(layers, name)
    named = inspect.signature(cls.__init__).parameters
    of_head = offered.pop("expand_v of head_dim", None)
    if of_head is not None and "head_dim" in named and "expand_k" not in named:
        offered["expand_v"] = of_head
    made: nn.Module = cls(**{argument: value for argument, value in offered.items() if argument in named})
    return made


def prepare(compiling: bool) -> None:
    """Before fla is first used: what it refuses here is timed all the same, and tuning is short."""
    # read when fla is imported: what was tuned beside other work must not be believed later
    os.environ["FLA_CACHE_RESULTS"] = "0"
    _lift_guard()
    _tune_briefly(compiling)


def _delta_product() -> Any:
    from fla.ops.gated_delta_product import chunk_gated_delta_product

    return chunk_gated_delta_product


def _lift_guard() -> None:
    """`chunk_bwd_dqkwg` raises for scalar gates on Hopper with Triton 3.4 to 3.7.0; this constant decides
    it."""
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

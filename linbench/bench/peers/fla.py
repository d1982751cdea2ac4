"""Kernels and layers of flash-linear-attention 0.6.

Kernels get log decays in float32 and normalized q and k, and return no final state. Layers are as published.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.bench.layer import LayerCase
from linbench.bench.layer_side import Side, random_tokens
from linbench.bench.peer import OperationCalls, Peer, UnsupportedByPeerError
from linbench.models.blocks.heads import head_dims

_WARM_UP_MS, _TUNING_MS = 5, 20
"""Milliseconds for which its autotuner runs each of hundreds of configurations, to warm up and to time.

Its default is to time for 100.
"""


def operations(compiling: bool) -> OperationCalls:
    """Return its chunked form of every recurrence that it has."""
    prepare(compiling)
    from fla import ops
    from fla.ops.forgetting_attn import parallel_forgetting_attn
    from fla.ops.gated_delta_product import chunk_gated_delta_product

    def output(
        function: Callable[..., Any], *names: str, **more: Any
    ) -> Callable[[dict[str, Tensor]], Tensor]:
        def call(x: dict[str, Tensor]) -> Tensor:
            o: Tensor = function(*(x[name] for name in names), **more)[0]
            return o

        return call

    def rwkv7(x: dict[str, Tensor]) -> Tensor:
        scale = x["q"].shape[-1] ** -0.5
        o: Tensor = ops.chunk_rwkv7(x["q"], x["log_decay"], x["k"], x["v"], x["a"], x["b"], scale=scale)[0]
        return o

    qkv = ("q", "k", "v")
    return {
        "fox": lambda x: parallel_forgetting_attn(*(x[name] for name in (*qkv, "gate"))),
        "path": path_of_fla,
        "path_fox": path_of_fla,
        "deltaformer": _deltaformer,
        "least_squares": _mesa,
        "ttt_linear": _ttt_linear,
        "linear_attention": output(ops.chunk_linear_attn, *qkv, normalize=False),
        "scalar_decay": output(ops.chunk_simple_gla, *qkv, "log_decay"),
        "gla": output(ops.chunk_gla, *qkv, "log_decay"),
        "rwkv6": output(ops.chunk_rwkv6, *qkv, "log_decay", "bonus"),
        "deltanet": output(ops.chunk_delta_rule, *qkv, "beta"),
        "gated_deltanet": output(ops.chunk_gated_delta_rule, *qkv, "log_decay", "beta"),
        "gated_deltaproduct": output(chunk_gated_delta_product, *qkv, "log_decay", "beta", num_householder=2),
        "comba": output(ops.chunk_comba, *qkv, "erase_key", "log_decay", "beta"),
        "kda": output(ops.chunk_kda, *qkv, "log_decay", "beta"),
        "rwkv7": rwkv7,
    }


def path_of_fla(x: dict[str, Tensor]) -> Tensor:
    """Compute PaTH attention, with gates if there are; it scales these like the scores."""
    from fla.ops.path_attn import parallel_path_attn

    q, k, v, w, beta = (x[name] for name in ("q", "k", "v", "w", "beta"))
    gate = x["gate"] * q.shape[-1] ** 0.5 if "gate" in x else None
    o: Tensor = parallel_path_attn(q, k, v, w, 2 * beta, gate)[0]
    return o


def _deltaformer(x: dict[str, Tensor]) -> Tensor:
    """Compute DeltaFormer. It reads corrected values by flash-attn; torch's attention takes its place."""
    from fla.ops.deltaformer.parallel import ParallelDeltaformerFunction

    q, k, v = (x[name] for name in ("q", "k", "v"))
    u: Tensor = ParallelDeltaformerFunction.apply(k, k, v, x["beta"].to(k.dtype))
    q, k, u = (y.transpose(1, 2) for y in (q, k, u))
    return F.scaled_dot_product_attention(q, k, u, is_causal=True).transpose(1, 2)


def _mesa(x: dict[str, Tensor]) -> Tensor:
    """Solve the least squares of MesaNet with as many steps of conjugate gradients as linbench's door."""
    from fla.ops.mesa_net import chunk_mesa_net

    k = F.normalize(x["k"].float(), dim=-1).to(x["k"].dtype)
    log_decay, strength = F.logsigmoid(x["gate"].float()), x["strength"].float().sigmoid().to(k.dtype)
    ridge = k.new_ones(k.shape[2:], dtype=torch.float32)
    o: Tensor = chunk_mesa_net(x["q"], k, x["v"], log_decay, strength, ridge, max_CG_iteration=30)[0]
    return o


def _ttt_linear(x: dict[str, Tensor]) -> Tensor:
    """Train the memory of TTT-Linear; its operation also adds a norm of what was read."""
    from fla.ops.ttt import chunk_ttt_linear

    k = F.normalize(x["k"].float(), dim=-1).to(x["k"].dtype)
    rates = (0.1 * x["rates"].float().sigmoid()).to(k.dtype)[..., None]
    weight, bias = k.new_ones(k.shape[2:]), k.new_zeros(k.shape[2:])
    o: Tensor = chunk_ttt_linear(x["q"], k, x["v"], weight, bias, rates, scale=1.0, chunk_size=16)[0]
    return o


LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "abc": ("ABCAttention", {}),
    "based": ("BasedLinearAttention", {}),
    "rebased": ("ReBasedLinearAttention", {}),
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
    "gated_deltanet2": ("GatedDeltaNet2", {}),
    "kda": ("KimiDeltaAttention", {}),
    "gsa": ("GatedSlotAttention", {}),
    "mesanet": ("MesaNet", {}),
    "mom": ("MomAttention", {}),
    "momentum_deltanet": ("MomentumDeltaNet", {}),
    "precond_gdn": ("PrecondGatedDeltaNet", {}),
    "precond_kda": ("PrecondKDA", {}),
    "raven": ("Raven", {}),
    "stick_breaking": ("StickBreakingAttention", {}),
    "fox": ("ForgettingAttention", {}),
    "path": ("PaTHAttention", {}),
    "path_fox": ("PaTHAttention", {"use_forget_gate": True}),
    "deltaformer": ("DeltaFormerAttention", {}),
}
"""Fla's class for each of linbench's models, and arguments that differ from its defaults.

Its Mamba-2, Mamba-3 and log-linear Mamba-2 need other packages and its softmax attention flash-attn, so they
are left out; its DeltaFormer needs flash-attn, too, and says so where that is not there.
"""

_GROWING = ("fox", "path", "path_fox", "deltaformer", "stick_breaking")
"""Layers with a cache, which every call makes longer; the states of all others keep their size."""

_CONTEXT_TOKENS = 256
"""Tokens taken in before decoding by layers whose state does not grow: more would change nothing."""


def layer(case: LayerCase, compiling: bool) -> Side:
    """Build its layer of the case's sizes.

    Raises UnsupportedByPeerError: it has none, heads share keys, values share their projection, or the case
    is not in the native form.
    """
    if case.mixer not in LAYERS:
        raise UnsupportedByPeerError(f"has no layer {case.label}")
    if case.cell.model.form != "native":
        raise UnsupportedByPeerError("has layers as published; --form native compares them")
    if any(getattr(case.settings, name, None) for name in ("key_heads", "kv_heads")):
        raise UnsupportedByPeerError("is built with a key for each head")
    if getattr(case.settings, "share_kv", False):
        raise UnsupportedByPeerError("has projections of keys and of values")
    prepare(compiling)
    name, more = LAYERS[case.mixer]
    module = build(name, **_arguments(case), layer_idx=0, num_hidden_layers=2, **more)

    def call_with_cache(x: Tensor, cache: Any) -> Tensor:
        y: Tensor = module(x, past_key_values=cache, use_cache=True)[0]
        return y

    def empty_cache() -> Any:
        from fla.models.utils import Cache

        return Cache()

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        if case.mixer in _GROWING:
            raise UnsupportedByPeerError(
                "has a cache that every token makes longer: it cannot be asked again and again from the same"
            )
        cache = empty_cache()
        weight = next(module.parameters())
        call_with_cache(random_tokens(batch, min(context, _CONTEXT_TOKENS), case.width, like=weight), cache)
        return lambda x: call_with_cache(x, cache)

    return Side(module, lambda x: module(x)[0], lambda x: call_with_cache(x, empty_cache()), after)


_SETTINGS = {
    "allow_neg_eigval": "neg_eigval",
    "feature_dim": "feature_dim",
    "max_cg_step_training": "steps",
    "num_householder": "steps",
    "num_memories": "memories",
    "num_slots": "slots",
    "shared_mem": "shared_memory",
    "topk": "active",
}
"""Linbench's setting for each argument of its layers, where both have it."""


def _arguments(case: LayerCase) -> dict[str, Any]:
    """Return arguments for any of its layers; `build` drops those that a class does not have."""
    settings: Any = case.settings
    key_dim, value_dim = head_dims(settings, case.width)
    arguments = {
        "hidden_size": case.width,
        "num_heads": settings.heads,
        "head_dim": key_dim,
        "expand_k": settings.heads * key_dim / case.width,
        "expand_v": settings.heads * value_dim / case.width,
        "expand_v of head_dim": value_dim / key_dim,
        "expand_ratio": key_dim,
        "num_key_value_heads": settings.heads,
    }
    for argument, setting in _SETTINGS.items():
        value = getattr(settings, setting, None)
        if value is not None:
            arguments[argument] = value
    if hasattr(settings, "normalise"):  # its linear attention has a norm instead unless told otherwise
        arguments["do_feature_map_norm"] = settings.normalise
        arguments["output_norm"] = "rmsnorm" if settings.output_norm == "rms" else "identity"
    return arguments


def build(name: str, **offered: Any) -> nn.Module:
    """Build a layer with those of the offered arguments that its constructor has.

    If heads have a dimension of their own, keys have it, and values are `expand_v of head_dim` times as wide.
    """
    from fla import layers

    cls = getattr(layers, name)
    parameters = inspect.signature(cls.__init__).parameters
    of_head = offered.pop("expand_v of head_dim", None)
    if of_head is not None and "head_dim" in parameters:
        offered |= {"expand_k": 1.0, "expand_v": of_head}
    taken = {argument: value for argument, value in offered.items() if argument in parameters}
    layer: nn.Module = cls(**taken)
    return layer


def prepare(compiling: bool) -> None:
    """Set up fla before its first use: lift its guard, and make its tuning short.

    Args:
        compiling: run every configuration once, only to compile it.
    """
    # fla reads this when it is imported: configurations tuned beside other work must not be used later
    os.environ["FLA_CACHE_RESULTS"] = "0"
    _lift_guard()
    _tune_briefly(compiling)


def _lift_guard() -> None:
    """Let `chunk_bwd_dqkwg` run with scalar gates on Hopper under Triton 3.4 to 3.7.0, which fla refuses."""
    from fla.ops.common import chunk_o

    chunk_o.TRITON_ABOVE_3_7_1 = True


def _tune_briefly(compiling: bool) -> None:
    """Run each of the hundreds of configurations for `_TUNING_MS`, or once if they are to be compiled."""
    from triton import testing
    from triton.runtime.autotuner import Autotuner

    def bench(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
        if compiling:
            call()
            return [1.0] * len(quantiles or [0.5])
        return testing.do_bench(call, warmup=_WARM_UP_MS, rep=_TUNING_MS, quantiles=quantiles)

    Autotuner.do_bench = property(lambda self: bench, lambda self, other: None)


PEER = Peer(
    name="fla",
    package="fla",
    distribution="flash-linear-attention",
    runs_on=("cuda",),
    note=(
        "fla refuses scalar gates on Hopper with Triton 3.4 to 3.7.0, where their gradients may be wrong (its"
        " issue 640); the guard is lifted, for timing only. It tunes with 20 ms for each configuration"
        " instead of 100."
    ),
    operations=operations,
    layer=layer,
)

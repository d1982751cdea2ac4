"""Small kernels with the same mathematics written independently."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.channel_decay import channel_decay
from linbench.kernels.cross_entropy import cross_entropy
from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.embedding import embedding
from linbench.kernels.erasure import erasure
from linbench.kernels.norms import Activation, l2_norm, layer_norm, rms_norm
from linbench.kernels.rotary import rotate
from linbench.kernels.short_convolution import short_convolution
from linbench.kernels.token_shift import token_shift
from linbench.verify.kernel_errors import Inputs, Trial, normal
from linbench.verify.scan_cases import SCANS


def _convolution(
    width: int,
    l2_heads: tuple[int, int] | None,
    state: bool,
    silu: bool = True,
    parts: tuple[int, ...] = (96,),
) -> Trial:
    inputs = {"x": normal(3, 99, 96), "weight": normal(width, 96)} | (
        {"before": normal(3, width - 1, 96)} if state else {}
    )

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        x, weight = given["x"], given["weight"]
        seen = torch.cat([given.get("before", x.new_zeros(len(x), width - 1, x.shape[2])), x], dim=1)
        y = F.conv1d(seen.mT, weight.mT[:, None], groups=x.shape[2]).mT
        if silu:
            y = F.silu(y)
        if l2_heads is not None:
            heads, rest = y[..., : l2_heads[0]].reshape(*y.shape[:2], -1, l2_heads[1]), y[..., l2_heads[0] :]
            y = torch.cat(
                [(heads / (heads.square().sum(-1, keepdim=True) + 1e-6).sqrt()).flatten(-2), rest], dim=-1
            )
        return *torch.split(y, list(parts), dim=-1), seen[:, x.shape[1] :]

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        y, last = short_convolution(
            given["x"],
            given["weight"],
            given.get("before"),
            activation="silu" if silu else None,
            l2_heads=l2_heads,
            parts=parts,
        )
        return *y, last

    return Trial(kernel, truth, inputs)


def _l2_norm() -> Trial:
    def truth(given: Inputs) -> tuple[Tensor, ...]:
        return (given["x"] / (given["x"].square().sum(-1, keepdim=True) + 1e-6).sqrt(),)

    return Trial(lambda given: (l2_norm(given["x"]),), truth, {"x": normal(4, 33, 96)})


def _rms_norm(activation: Activation | None) -> Trial:
    inputs = {"x": normal(4, 33, 64), "weight": normal(64)} | (
        {"gate": normal(33, 4, 64).transpose(0, 1)} if activation else {}
    )

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        y = given["x"] / (given["x"].square().mean(-1, keepdim=True) + 1e-5).sqrt() * given["weight"]
        if activation is not None:
            y = y * given["gate"].sigmoid() * (given["gate"] if activation == "swish" else 1.0)
        return (y,)

    return Trial(
        lambda given: (rms_norm(given["x"], given["weight"], gate=given.get("gate"), activation=activation),),
        truth,
        inputs,
    )


def _layer_norm(heads: int, width: int, activation: Activation | None, bias: bool = True) -> Trial:
    inputs = {"x": 2 + normal(4, 33, heads, width), "weight": normal(heads, width)}
    inputs |= {"bias": normal(width, heads).mT} if bias else {}
    inputs |= {"gate": normal(33, 4, heads, width).transpose(0, 1)} if activation else {}

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return (
            layer_norm(
                given["x"], given["weight"], given.get("bias"), gate=given.get("gate"), activation=activation
            ),
        )

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        far = given["x"] - given["x"].mean(-1, keepdim=True)
        y = far / (far.square().mean(-1, keepdim=True) + 1e-5).sqrt() * given["weight"] + given.get(
            "bias", 0.0
        )
        if activation is not None:
            y = y * given["gate"].sigmoid() * (given["gate"] if activation == "swish" else 1.0)
        return (y,)

    return Trial(kernel, truth, inputs)


def _decay_gate(heads: int) -> Trial:
    def truth(given: Inputs) -> tuple[Tensor, ...]:
        return (-given["A_log"].exp() * F.softplus(given["step"] + given["bias"]),)

    inputs = {"step": 4 * normal(7, 33, heads), "A_log": normal(heads), "bias": normal(heads) - 4}
    return Trial(lambda given: (decay_gate(given["step"], given["A_log"], given["bias"]),), truth, inputs)


def _channel_decay(heads: int, dim: int, bound: float | None) -> Trial:
    def truth(given: Inputs) -> tuple[Tensor, ...]:
        logit = given["offset"].view(7, 33, heads, dim) + given["base"]
        return (-logit.exp() if bound is None else -bound * logit.sigmoid(),)

    inputs = {"offset": 2 * normal(7, 33, heads * dim), "base": normal(heads, dim) - 2}
    return Trial(lambda given: (channel_decay(given["offset"], given["base"], bound=bound),), truth, inputs)


def _erasure(heads: int, dim: int) -> Trial:
    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return erasure(given["k"], given["offset"], given["base"], given["k_k"], given["k_a"])

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        k, rate = given["k"], (given["offset"].view(7, 33, heads, dim) + given["base"]).sigmoid()
        removed = k * given["k_k"] / (k * given["k_k"]).square().sum(-1, keepdim=True).sqrt()
        return k + k * given["k_a"] * (rate - 1), -removed, rate * removed

    inputs = {"k": normal(33, 7, heads, dim).transpose(0, 1), "offset": 2 * normal(7, 33, heads * dim)}
    return Trial(
        kernel,
        truth,
        inputs | {name: normal(heads + i, dim)[i:] for i, name in enumerate(("base", "k_k", "k_a"))},
    )


def _rotary(batch: int, length: int, heads: int, dim: int, *, own: bool) -> Trial:
    """own: every sequence at a place of its own, as after states."""
    start = torch.arange(float(batch) if own else 1.0)[:, None, None]
    angle = (start + torch.arange(length)[:, None]) * 10_000 ** (-torch.arange(dim // 2) / (dim // 2))

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        here = angle.to(given["x"].device)
        return (rotate(given["x"], here.cos(), here.sin()),)

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        here = angle.to(given["x"]).unsqueeze(2)
        turned = torch.complex(*given["x"].chunk(2, dim=-1)) * torch.polar(torch.ones_like(here), here)
        return (torch.cat([turned.real, turned.imag], dim=-1),)

    return Trial(kernel, truth, {"x": normal(length, batch, heads, dim).transpose(0, 1)})


def _token_shift(
    streams: int, batch: int, length: int, width: int, *, last: bool = False, offset: bool = False
) -> Trial:
    shape = batch, length, width
    inputs = {"x": normal(*shape), "mix": normal(streams, width)} | (
        {"last": normal(batch, width)} if last else {}
    )
    inputs |= {"offset": normal(streams, length, batch, width).transpose(1, 2)} if offset else {}

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        x, share = given["x"], given["mix"][:, None, None] + given.get("offset", 0)
        earlier = torch.cat([given.get("last", torch.zeros_like(x[:, 0]))[:, None], x], dim=1)[:, :-1]
        return ((1 - share) * x + share * earlier).unbind()

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return token_shift(
            given["x"], given["mix"], given.get("last"), offset=given["offset"].unbind() if offset else None
        )

    return Trial(kernel, truth, inputs)


def _cross_entropy(rows: int, vocabulary: int) -> Trial:
    targets = torch.randint(vocabulary, (rows,), generator=torch.Generator().manual_seed(0))
    targets[::3] = -100

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return (cross_entropy(given["hidden"], given["weight"], targets.to(given["hidden"].device)),)

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        return (F.cross_entropy(given["hidden"] @ given["weight"].mT, targets.to(given["hidden"].device)),)

    return Trial(kernel, truth, {"hidden": normal(rows, 64), "weight": normal(vocabulary, 64) / 8})


def _embedding(rows: int, vocabulary: int, width: int) -> Trial:
    """Three of four places share a row."""
    index = torch.randint(vocabulary, (rows,), generator=torch.Generator().manual_seed(0))
    index[torch.arange(rows) % 4 != 0] = 0

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return (embedding(given["weight"], index.to(given["weight"].device)),)

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        return (given["weight"][index.to(given["weight"].device)],)

    return Trial(kernel, truth, {"weight": normal(vocabulary, width)})


def _gated_attention(
    batch: int,
    length: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    *,
    gates: float | None = 2.0,
    window: int | None = None,
) -> Trial:
    """gates: how widely their logits spread; None is none."""
    q, k = normal(2, length, batch, heads, key_dim).transpose(1, 2)
    inputs = {"q": q, "k": k, "v": normal(length, batch, heads, value_dim).transpose(0, 1)}
    if gates is not None:
        inputs["gate"] = F.logsigmoid(gates * normal(batch, length, heads))

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        kept = given["gate"].double().cumsum(dim=1) if gates is not None else None
        return (
            attention(
                given["q"], given["k"], given["v"], window=window, kept=None if kept is None else (kept, kept)
            ),
        )

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        q, k, v = (given[name].transpose(1, 2) for name in ("q", "k", "v"))
        i = torch.arange(length, device=q.device)
        unseen = (i[:, None] < i) | (i[:, None] - i >= (window or length))
        scores = q @ k.mT * key_dim**-0.5
        if gates is not None:  # what is forgotten from each key to each query, gate by gate
            between = (i[:, None, None] >= i) & (i > i[:, None])  # [query, key, gate]
            scores = scores + torch.einsum("qkg,bgh->bhqk", between.to(q), given["gate"])
        return ((scores.masked_fill(unseen, float("-inf")).softmax(-1) @ v).transpose(1, 2),)

    return Trial(kernel, truth, inputs)


def _cached_attention(
    batch: int, places: int, heads: int, key_dim: int, value_dim: int, *, window: int | None = None
) -> Trial:
    """One more token, with gates, which has no gradient; the first of the places are empty, and those of the
    last sequence stand in another order."""
    there = torch.arange(places).sub(3).clamp(min=-1).repeat(batch, 1)
    there[-1] = there[-1].flip(0)
    q, k = normal(batch, 1, heads, key_dim), normal(batch, heads, places, key_dim).transpose(1, 2)
    inputs = {
        "q": q,
        "k": k,
        "v": normal(batch, heads, places, value_dim).transpose(1, 2),
        "left": -normal(batch, places, heads).abs(),
    }

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        q = given["q"]
        here, at = there.amax(dim=1, keepdim=True).to(q.device), there.to(q.device)
        kept = (torch.zeros(batch, 1, heads, device=q.device), -given["left"])
        nothing = (at == EMPTY)[:, :, None, None]
        k, v = (given[name].masked_fill(nothing, float("nan")) for name in ("k", "v"))
        return (attention(q, k, v, query_positions=here, key_positions=at, window=window, kept=kept),)

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        at = there.to(given["q"].device)
        unseen = (at == EMPTY) | (at.amax(dim=1, keepdim=True) - at >= (window or places))
        scores = torch.einsum("bthk,bshk->bhs", given["q"], given["k"]) * key_dim**-0.5 + given["left"].mT
        return (
            torch.einsum(
                "bhs,bshv->bhv", scores.masked_fill(unseen[:, None], float("-inf")).softmax(-1), given["v"]
            )[:, None],
        )

    return Trial(kernel, truth, inputs, differentiable=False)


SMALL: dict[str, dict[str, Callable[[], Trial]]] = {
    "short_convolution": {
        "kernel 4, unit heads, from a state": partial(_convolution, 4, (64, 32), True, parts=(32, 32, 32)),
        "kernel 2": partial(_convolution, 2, None, False),
        "kernel 3, no activation": partial(_convolution, 3, None, True, silu=False),
    },
    **SCANS,
    "l2_norm": {"as published": _l2_norm},
    "rms_norm": {
        "no gate": partial(_rms_norm, None),
        "swish gate": partial(_rms_norm, "swish"),
        "sigmoid gate": partial(_rms_norm, "sigmoid"),
    },
    "layer_norm": {
        "no gate": partial(_layer_norm, 2, 64, None),
        "swish gate, odd sizes": partial(_layer_norm, 3, 50, "swish"),
        "sigmoid gate, no bias": partial(_layer_norm, 2, 64, "sigmoid", bias=False),
        "wide heads": partial(_layer_norm, 2, 512, "swish"),
    },
    "decay_gate": {"a few heads": partial(_decay_gate, 3), "channels": partial(_decay_gate, 200)},
    "channel_decay": {
        "free": partial(_channel_decay, 2, 64, None),
        "bounded, odd sizes": partial(_channel_decay, 3, 50, 0.5),
    },
    "erasure": {
        "as published": partial(_erasure, 2, 64),
        "odd sizes": partial(_erasure, 3, 50),
        "wide heads": partial(_erasure, 2, 256),
    },
    "rotary": {
        "one place for all": partial(_rotary, 3, 65, 2, 64, own=False),
        "places of their own": partial(_rotary, 2, 7, 3, 36, own=True),
    },
    "token_shift": {
        "six streams": partial(_token_shift, 6, 3, 99, 128),
        "odd width, from a token": partial(_token_shift, 4, 2, 65, 70, last=True),
        "with offsets": partial(_token_shift, 5, 2, 100, 192, last=True, offset=True),
        "many tokens": partial(_token_shift, 1, 8, 4097, 256),
        "one token": partial(_token_shift, 4, 3, 1, 64, last=True),
    },
    "gated_attention": {
        "gates": partial(_gated_attention, 2, 130, 2, 64, 64),
        "gates and a window": partial(_gated_attention, 2, 99, 3, 28, 28, window=20),
        "a window": partial(_gated_attention, 2, 200, 2, 64, 32, gates=None, window=70),
        "gates that forget all": partial(_gated_attention, 1, 99, 2, 16, 48, gates=40.0),
        "wide heads": partial(_gated_attention, 2, 99, 2, 128, 128),
        "very wide heads": partial(_gated_attention, 1, 70, 2, 256, 192),
        "three tokens": partial(_gated_attention, 3, 3, 2, 64, 64),
    },
    "cached_attention": {
        "few places": partial(_cached_attention, 3, 40, 2, 28, 64),
        "many places": partial(_cached_attention, 2, 3000, 2, 64, 64),
        "many places and a window": partial(_cached_attention, 2, 2100, 3, 128, 128, window=700),
        "very wide heads": partial(_cached_attention, 1, 600, 2, 256, 192),
    },
    "embedding": {
        "small vocabulary": partial(_embedding, 300, 5, 64),
        "large vocabulary": partial(_embedding, 5000, 3001, 96),
    },
    "cross_entropy": {
        "small vocabulary": partial(_cross_entropy, 300, 50),
        "large vocabulary": partial(_cross_entropy, 60, 5003),
    },
}
"""Families beside `matrix_state`: by kernel and case, in float64."""

"""Cases of fast weights, with the loop over tokens and autograd."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, Operation, Shape, normal, random_inputs
from linbench.kernels.fast_weight import Network, Step, fast_weight

_HEADS, _HIDDEN = 2, 6


def _case(
    network: Network,
    step: Step,
    length: int,
    *,
    key_dim: int = 5,
    value_dim: int = 5,
    norm: bool = False,
    scales: bool = False,
    sizes: bool = False,
    backend: str = "auto",
) -> KernelCase:
    shapes = network.shapes(key_dim, _HIDDEN, value_dim)
    batch, rates = 2, (1 if network.kind == "linear" or step.window > 1 else len(shapes))
    inputs: Inputs = {
        "q": normal(batch, length, _HEADS, key_dim),
        "k": torch.nn.functional.normalize(normal(batch, _HEADS, length, key_dim), dim=-1).transpose(1, 2),
        "v": normal(length, batch, _HEADS, value_dim).transpose(0, 1),
        "rates": 0.5 * normal(batch, length, _HEADS, rates).sigmoid(),
        **{f"map {i}": normal(_HEADS, *shape) / shape[0] ** 0.5 for i, shape in enumerate(shapes)},
    }
    if norm:
        inputs |= {"weight": 1 + 0.1 * normal(_HEADS, value_dim), "bias": 0.1 * normal(value_dim, _HEADS).T}
    if scales:
        inputs["scales"] = 1 / torch.arange(1, step.size + 1, dtype=torch.float64)
    for name, there in (("log_momentum", step.momentum), ("log_keep", step.decay)):
        if there:
            bias = 1.0 if name == "log_momentum" else 3.0
            inputs[name] = (normal(batch, length, _HEADS) + bias).sigmoid().log()
    if sizes:
        inputs["step_sizes"] = 0.3 * normal(batch, length, _HEADS).sigmoid()
    names = ("log_momentum", "log_keep", "step_sizes", *(name for name in inputs if name.startswith("map")))
    call = partial(_call, network=network, step=step)
    kernel, reference = (partial(call, backend=each) for each in (backend, "reference"))
    return KernelCase(kernel, reference, inputs, at_least_float32=("rates", "scales", *names))


def _call(given: Inputs, network: Network, step: Step, backend: Any = "auto") -> tuple[Tensor, ...]:
    maps = [x for name, x in given.items() if name.startswith("map")]
    return fast_weight(
        given["q"],
        given["k"],
        given["v"],
        given["rates"],
        maps,
        network=network,
        step=step,
        norm=(given["weight"], given["bias"]) if "weight" in given else None,
        scales=given.get("scales"),
        log_momentum=given.get("log_momentum"),
        log_keep=given.get("log_keep"),
        step_sizes=given.get("step_sizes"),
        backend=backend,
    )


_TTT = Network("linear", bias=True, residual=True)
_PLAIN = Network("linear", bias=True)
_DEEP = Network("mlp", bias=True, residual=True)
# in five steps of Newton-Schulz rounding would grow 500 times, where few tokens leave a change of low rank
_ATLAS = Step(4, momentum=True, decay=True, orthogonal=2, window=3)
_GATED = Network("gated", loss="product")

_CASES = {
    "ttt_linear": partial(_case, _TTT, Step(4), 14, norm=True, scales=True),
    "ttt_mlp": partial(_case, _DEEP, Step(4), 10, norm=True, scales=True),
    "titans": partial(_case, Network("mlp"), Step(4, momentum=True, decay=True), 14),
    "one token a mini-batch": partial(_case, Network(), Step(1, momentum=True, decay=True), 7),
    "lact": partial(_case, _GATED, Step(4, "before", momentum=True, keeps_norms=True), 14),
    "lact with muon": partial(
        _case, _GATED, Step(4, "before", momentum=True, decay=True, orthogonal=5, keeps_norms=True), 9
    ),
    "omega": partial(_case, Network(residual=True), Step(4, decay=True, window=7), 14, sizes=True),
    "omega with momentum": partial(_case, _DEEP, Step(4, momentum=True, window=3), 11, norm=True),
    "atlas": partial(_case, Network("mlp", residual=True), _ATLAS, 11, norm=True, sizes=True),
    "atlas, one token a mini-batch": partial(
        _case, Network("gated"), Step(1, orthogonal=2, window=2), 5, scales=True
    ),
    "atlas without a window": partial(_case, Network(), Step(4, momentum=True, orthogonal=2), 9),
}

_in_triton = partial(_case, backend="triton")

_CASES_OF_TRITON = {
    "ttt_linear": partial(_in_triton, _TTT, Step(16), 150, key_dim=64, value_dim=64, norm=True, scales=True),
    "a large mini-batch": partial(_in_triton, _TTT, Step(32), 100, key_dim=28, value_dim=28, norm=True),
    "neither norm nor bias": partial(_in_triton, Network(), Step(16), 64, key_dim=16, value_dim=100),
    "one token a mini-batch": partial(_in_triton, _TTT, Step(1), 20, key_dim=16, value_dim=16, norm=True),
    "narrow values": partial(_in_triton, _PLAIN, Step(16), 70, key_dim=100, value_dim=16, norm=True),
    "narrow keys": partial(_in_triton, _PLAIN, Step(16), 70, key_dim=16, value_dim=100, norm=True),
    "wide heads": partial(_in_triton, _TTT, Step(16), 70, key_dim=128, value_dim=128, norm=True, scales=True),
}

_TIMED = Network("linear", bias=True), Step(16)
"""The memory of TTT-Linear, arXiv:2407.04620."""


def _inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
    sizes = {**dict.fromkeys(("q", "k", "v"), (*shape,)), "rates": shape[:3]}
    return random_inputs(shape, dtype, device, sizes=lambda _: sizes)


def _timed(given: Inputs) -> Tensor:
    k = torch.nn.functional.normalize(given["k"].float(), dim=-1).to(given["k"].dtype)
    heads, dim = k.shape[2:]
    network, step = _TIMED
    start = [k.new_zeros(heads, *each) for each in network.shapes(dim, dim, dim)]
    norm = (k.new_ones(heads, dim), k.new_zeros(heads, dim))
    rates = 0.1 * given["rates"].float().sigmoid()
    return fast_weight(given["q"], k, given["v"], rates, start, network=network, step=step, norm=norm)[0]


def _flops(shape: Shape) -> float:
    """Return operations of three products with the weights: keys, their gradients, queries."""
    return 2.0 * shape.B * shape.T * shape.H * 3 * shape.D**2


FAMILY = Family(
    cases={"fast_weight": _CASES},
    gpu_cases={"fast_weight": _CASES_OF_TRITON, "fast_weight_in_torch": _CASES},
    profile_kind="recurrence",
    profile_names=("linbench::fast_weight",),
    operations={"ttt_linear": Operation(_inputs, _timed, _flops)},
    shown_with_models=True,
)

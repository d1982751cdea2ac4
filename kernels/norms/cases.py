"""Cases of the norms, and the operations that are timed."""

from functools import partial

from torch import Tensor

from linbench.kernels.family import (
    Family,
    Inputs,
    KernelCase,
    Operation,
    Shape,
    no_products,
    normal,
    random_inputs,
)
from linbench.kernels.norms import Activation, add_rms_norm, l2_norm, layer_norm, rms_norm


def _l2_norm() -> KernelCase:
    def reference(given: Inputs) -> tuple[Tensor, ...]:
        return (given["x"] / (given["x"].square().sum(-1, keepdim=True) + 1e-6).sqrt(),)

    return KernelCase(lambda given: (l2_norm(given["x"]),), reference, {"x": normal(4, 33, 96)})


def _rms_norm(activation: Activation | None) -> KernelCase:
    inputs = {"x": normal(4, 33, 64), "weight": normal(64)}
    if activation is not None:
        inputs["gate"] = normal(33, 4, 64).transpose(0, 1)

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return (rms_norm(given["x"], given["weight"], gate=given.get("gate"), activation=activation),)

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        return (_gated(_scaled(given["x"]) * given["weight"], given, activation),)

    return KernelCase(kernel, reference, inputs)


def _add_rms_norm(width: int) -> KernelCase:
    inputs = {
        "x": normal(4, 33, width),
        "added": normal(33, 4, width).transpose(0, 1),
        "weight": normal(width),
    }

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return add_rms_norm(given["x"], given["added"], given["weight"])

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        total = given["x"] + given["added"]
        return total, _scaled(total) * given["weight"]

    return KernelCase(kernel, reference, inputs)


def _layer_norm(heads: int, width: int, activation: Activation | None, bias: bool = True) -> KernelCase:
    inputs = {"x": 2 + normal(4, 33, heads, width), "weight": normal(heads, width)}
    if bias:
        inputs["bias"] = normal(width, heads).mT
    if activation is not None:
        inputs["gate"] = normal(33, 4, heads, width).transpose(0, 1)

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        more = {"gate": given.get("gate"), "activation": activation}
        return (layer_norm(given["x"], given["weight"], given.get("bias"), **more),)  # type: ignore[arg-type]

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        centred = given["x"] - given["x"].mean(-1, keepdim=True)
        y = _scaled(centred) * given["weight"] + given.get("bias", 0.0)
        return (_gated(y, given, activation),)

    return KernelCase(kernel, reference, inputs)


def _scaled(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def _gated(y: Tensor, given: Inputs, activation: Activation | None) -> Tensor:
    if activation is None:
        return y
    gate = given["gate"]
    return y * gate.sigmoid() * (gate if activation == "swish" else 1.0)


def _heads(shape: Shape) -> tuple[int, ...]:
    return (shape.B, shape.T, shape.H, shape.D)


def _l2_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    return {"x": _heads(shape)}


def _rms_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    return {"x": _heads(shape), "weight": (shape.D,), "gate": _heads(shape)}


FAMILY = Family(
    cases={
        "l2_norm": {"as published": _l2_norm},
        "rms_norm": {
            "no gate": partial(_rms_norm, None),
            "swish gate": partial(_rms_norm, "swish"),
            "sigmoid gate": partial(_rms_norm, "sigmoid"),
        },
        "add_rms_norm": {"as published": partial(_add_rms_norm, 64), "odd width": partial(_add_rms_norm, 50)},
        "layer_norm": {
            "no gate": partial(_layer_norm, 2, 64, None),
            "swish gate, odd sizes": partial(_layer_norm, 3, 50, "swish"),
            "sigmoid gate, no bias": partial(_layer_norm, 2, 64, "sigmoid", bias=False),
            "wide heads": partial(_layer_norm, 2, 512, "swish"),
        },
    },
    profile_kind="norms",
    profile_names=("linbench_norm", "linbench::norm", "layer_norm", "LayerNorm", "_Norm"),
    operations={
        "l2_norm": Operation(
            partial(random_inputs, sizes=_l2_sizes), lambda given: l2_norm(given["x"]), no_products
        ),
        "rms_norm": Operation(
            partial(random_inputs, sizes=_rms_sizes),
            lambda given: rms_norm(given["x"], given["weight"], gate=given["gate"], activation="swish"),
            no_products,
        ),
    },
)

"""Linear maps, also several of one input at a time, laid out as matrix products that fill a GPU."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.matmul import product, sum_of_products
from linbench.kernels.operators import inside_vmap, product_dtype, without_autocast

NARROW = 16
"""Maps with fewer outputs than this share one product."""


class Linear(nn.Linear):
    """W x with W [O, D]. It also takes a `SharedInput`, which computes all maps of one input together."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: "Tensor | SharedInput") -> Tensor:
        """Return [..., O] of x [..., D]."""
        return x.project(self) if isinstance(x, SharedInput) else linear(x, [self.weight])[0]


class Affine(nn.Linear):
    """W x + b with W [O, D] and b [O]. It does not take a `SharedInput`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., O] of x [..., D]."""
        # for a single model the library splits the gradient's sums itself and adds b in the same kernel
        if not (_runs_on_gpu(x) and inside_vmap()):
            return super().forward(x)
        y = linear(x, [self.weight])[0]
        return y if self.bias is None else y + self.bias.to(y.dtype)


class LowRank(nn.Module):
    """W_up activation(W_down x) with W_down [R, D] and W_up [O, R], with or without a bias at the end."""

    def __init__(
        self,
        inputs: int,
        rank: int,
        outputs: int,
        *,
        bias: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.down = Linear(inputs, rank)
        self.up = Affine(rank, outputs, bias=bias)
        self.activation = activation

    def forward(self, x: "Tensor | SharedInput") -> Tensor:
        """Return [..., O] of x [..., D]."""
        low = self.down(x)
        y: Tensor = self.up(low if self.activation is None else self.activation(low))
        return y


class SharedInput:
    """An input x [..., D] of several linear maps, which are all computed when the first result is needed."""

    def __init__(self, x: Tensor, maps: Sequence[Linear]) -> None:
        self.x, self.maps = x, list(maps)
        self.outputs: dict[Linear, Tensor] = {}

    def project(self, one: Linear) -> Tensor:
        """Return the result [..., O] of one of the maps."""
        if not self.outputs:
            self.outputs = dict(
                zip(self.maps, linear(self.x, [each.weight for each in self.maps]), strict=True)
            )
        return self.outputs[one]


def linear(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return W_i x [..., O_i] for each of the weights [O_i, D]; under torch.autocast in its dtype."""
    if not _runs_on_gpu(x):
        return [F.linear(x, weight) for weight in weights]
    narrow = [i for i, weight in enumerate(weights) if weight.shape[0] < NARROW]
    products = [weight for i, weight in enumerate(weights) if i not in narrow]
    if narrow:  # all narrow maps as one more product
        joined = [weights[i] for i in narrow]
        products.append(torch.cat(joined) if len(joined) > 1 else joined[0])
    rows, dtype = x.reshape(-1, x.shape[-1]), product_dtype(x)
    stacked = inside_vmap()
    given = [each if stacked else each[None] for each in (rows, *products)]
    with without_autocast(x):
        made = _Products.apply(given[0], dtype, *given[1:])  # type: ignore[no-untyped-call]
    outputs = [y if stacked else y[0] for y in made[: len(products)]]
    if narrow:
        parts = torch.split(outputs.pop(), [weights[i].shape[0] for i in narrow], dim=-1)
        for i, part in zip(narrow, parts, strict=True):
            outputs.insert(i, part)
    return [y.unflatten(0, x.shape[:-1]) for y in outputs]


def _runs_on_gpu(x: Tensor) -> bool:
    """Return whether the grouped products pay off; on a CPU they do not."""
    return x.is_cuda


class _Products(torch.autograd.Function):
    """Products of x [R, N, D] with weights [R, O_i, D], [R, N, O_i] each, in `dtype`.

    They are followed by those factors that had to be cast, so that backward need not cast them again; only a
    gradient of the gradient does.

    In the backward pass each product adds to the gradient of x in place. Gradients of weights are sums over
    all rows with few results: they are split into as many parts as fill a GPU, and the parts are added in
    float32.
    """

    @staticmethod
    def forward(x: Tensor, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        given = (x, *weights)
        factors = [each.to(dtype) for each in given]
        products = (product(factors[0], weight.mT) for weight in factors[1:])
        cast = (factor for factor, before in zip(factors, given, strict=True) if factor is not before)
        return *products, *cast

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.dtype, *weights = inputs
        ctx.count = len(weights)
        cast = output[ctx.count :]
        ctx.mark_non_differentiable(*cast)
        ctx.save_for_backward(x, *weights, *cast)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        given, cast = ctx.saved_tensors[: 1 + ctx.count], iter(ctx.saved_tensors[1 + ctx.count :])
        x, *weights = given
        if torch.is_grad_enabled():  # a gradient of this gradient goes through what was given
            narrow, *own = (each.to(ctx.dtype) for each in given)
        else:
            narrow, *own = (each if each.dtype == ctx.dtype else next(cast) for each in given)
        dx: Tensor | None = None
        dweights: list[Tensor | None] = []
        for dy, weight, factor in zip(gradients[: ctx.count], weights, own, strict=True):
            if dy is None:
                dweights.append(None)
                continue
            dx = product(dy, factor, onto=dx)
            dweights.append(sum_of_products(dy, narrow).to(weight.dtype))
        return None if dx is None else dx.to(x.dtype), None, *dweights

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, dtype: torch.dtype, *weights: Tensor) -> Any:
        """Move the replicas' dimension to the front."""

        def replicas_first(given: Tensor, dim: int | None) -> Tensor:
            return given.expand(info.batch_size, *given.shape) if dim is None else given.movedim(dim, 0)

        inputs = replicas_first(x, in_dims[0])
        maps = [replicas_first(weight, dim) for weight, dim in zip(weights, in_dims[2:], strict=True)]
        outputs = _Products.apply(inputs, dtype, *maps)  # type: ignore[no-untyped-call]
        return outputs, tuple(0 for _ in outputs)

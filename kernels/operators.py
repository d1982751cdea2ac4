"""Choice of a backend, and torch operators around Triton kernels.

Every Triton operator shares where it runs, and how replicas fold into its batch.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""True if Triton's interpreter runs its kernels, on the CPU.

Triton itself reads the variable once, when it is first imported.
"""

_INSTALLED = find_spec("triton") is not None


Backend = Literal["auto", "torch", "triton"]
"""Backend of a door that has a torch and a Triton form; "auto" takes the fastest that runs on the device."""

BACKENDS = get_args(Backend)


def runs_triton(x: Tensor) -> bool:
    """Tell whether Triton kernels take this tensor.

    They do if it lies on a GPU or the interpreter runs them, but never float64, which they would round.
    """
    return _INSTALLED and (x.is_cuda or INTERPRETED) and x.dtype != torch.float64


def uses_triton(x: Tensor, backend: str) -> bool:
    """Tell whether a door that has a torch and a Triton form takes the latter for x.

    Args:
        backend: "auto", "torch" or "triton".

    Raises ValueError: a backend that is not there or does not run on x.
    """
    if backend not in BACKENDS or (backend == "triton" and not runs_triton(x)):
        raise ValueError(
            f"backend must be one of {', '.join(BACKENDS)}, triton only on a GPU and not in float64; not"
            f" {backend!r} for {x.dtype} on {x.device}"
        )
    return backend != "torch" and runs_triton(x) and x.numel() > 0  # of nothing torch's form makes nothing


_wished: list[tuple[str, list[str]]] = []


@contextmanager
def prefer_backend(backend: str) -> Iterator[list[str]]:
    """Let every door that may choose take a backend, if it has it, inside this context.

    Yields a list that gets an entry each time a door takes it.
    """
    taken: list[str] = []
    _wished.append((backend, taken))
    try:
        yield taken
    finally:
        _wished.pop()


def choose_backend(
    backend: str, backends: Collection[str], x: Tensor, *, otherwise: str, empty: str = "reference"
) -> str:
    """Return which of its backends a door takes for x.

    Args:
        backend: the one the caller names, or "auto": then the one that `prefer_backend` asks for, else Triton
            where the door has it and it runs, else `otherwise`.
        backends: names of those the door has.
        empty: the one for an x without any numbers, such as no sequences, whatever was named.

    Raises ValueError: a backend that is not there or does not run on x.
    """
    if backend == "auto":
        wished = _wished[-1] if _wished and _wished[-1][0] in backends else None
        if wished is None:
            wished = ("triton" if "triton" in backends and runs_triton(x) else otherwise, [])
        backend, taken = wished
        taken.append(backend)
    if backend not in backends:
        raise ValueError(f"backend must be one of auto, {', '.join(backends)}, not {backend!r}")
    if backend == "triton" and not runs_triton(x):
        raise ValueError(f"backend triton runs on a GPU and not in float64, not on {x.dtype} on {x.device}")
    return backend if x.numel() else empty


def require_heads(**shaped: Tensor) -> None:
    """Require that tensors [B, T, H, K], given by name, have a head at least, and a number in it.

    Raises ValueError: one has none.
    """
    if any(0 in x.shape[2:] for x in shaped.values()):
        raise ValueError(
            f"{', '.join(shaped)} have at least one head, of at least one number, not"
            f" {[tuple(x.shape) for x in shaped.values()]}"
        )


_NOTHING = nullcontext()


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which torch.autocast for the device of x is off."""
    at_work = torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type)
    return torch.autocast(x.device.type, enabled=False) if at_work else _NOTHING


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which a product of matrices takes x: its own, or that of torch.autocast."""
    kind = x.device.type
    return (
        torch.get_autocast_dtype(kind)
        if torch.is_autocast_enabled(kind) and x.dtype != torch.float64
        else x.dtype
    )


def reduce_partials(parts: Tensor) -> Tensor:
    """Sum parts [R, P, ...] in float32, one from each of P programs, to [R, ...].

    The result is the same every time.
    """
    # as a product: torch's own sum leaves a GPU idle where there are few columns
    ones = torch.ones(len(parts), 1, parts.shape[1], device=parts.device)
    with without_autocast(parts):
        return torch.bmm(ones, parts.flatten(2)).view(len(parts), *parts.shape[2:])


def is_traced() -> bool:
    """Tell whether torch is tracing and must be told of operators by name.

    It is in its compiler, in a function transform such as torch.vmap, and in a mode that counts operators or
    computes shapes without numbers.
    """
    active: bool = (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )
    return active


def inside_vmap() -> bool:
    """Tell whether the innermost function transform at work is torch.vmap."""
    functorch = torch._C._functorch
    level = functorch.peek_interpreter_stack()
    return level is not None and level.key() == functorch.TransformType.Vmap


def vmap_rule(operator: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    """Apply an operator to replicas as more of the batch: the rule of `torch.vmap`.

    It holds for operators whose every tensor argument and result, if it is there at all, has a first
    dimension over which they work independently: the batch, or for weights a number of groups that divides it
    (batch row b of B belongs to group b // (B / groups)).
    """

    def fold(x: Any, dim: Any) -> Any:
        if isinstance(x, list):
            return list(map(fold, x, dim))
        if not isinstance(x, Tensor):
            return x
        stacked = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        return stacked.flatten(0, 1)

    def unfold(x: Any) -> Any:
        if isinstance(x, list):
            return list(map(unfold, x))
        return x if x is None else x.reshape(info.batch_size, len(x) // info.batch_size, *x.shape[1:])

    results = operator(*map(fold, args, in_dims))
    if not isinstance(results, tuple):
        return unfold(results), 0
    return tuple(map(unfold, results)), tuple(None if x is None else 0 for x in results)


class _Folded(torch.autograd.Function):
    """A function under torch.vmap, with replicas in the batch. torch differentiates what `vmap` does."""

    @staticmethod
    def forward(function: Callable[..., Any], *args: Any) -> Any:
        """Return the function's results."""
        return function(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse: only `call_undifferentiated` comes here."""
        raise RuntimeError("a gradient of linbench has no derivative of its own")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], function: Callable[..., Any], *args: Any) -> Any:
        """Apply the function to replicas as more of the batch."""
        return vmap_rule(partial(call_folded, function), info, in_dims[1:], *args)


def call_folded(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of which `vmap_rule` holds, so that torch.vmap folds replicas into the batch.

    Inside, the function may do what torch.vmap has no rule for.
    """
    return _Folded.apply(function, *args) if inside_vmap() else function(*args)  # type: ignore[no-untyped-call]


def call_undifferentiated(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of which `vmap_rule` holds, and which is not differentiated.

    Replicas then stack under torch.vmap of a gradient, too: a backward calls what it computes with so. An
    operator's own rule does not do there, since torch lets no gradient transform see operators.
    """
    return apply_function(_Folded, function, *args)


Function: Any = torch.autograd.function._SingleLevelFunction
"""torch.autograd.Function without its work for function transforms at every call.

It serves only calls that are not traced (`is_traced`).
"""

_LIBRARY: Any = torch.library.Library("linbench", "FRAGMENT")  # type: ignore[no-untyped-call]


def any_requires_grad(args: Iterable[Any]) -> bool:
    """Tell whether a tensor among the arguments requires a gradient."""
    return any(isinstance(x, Tensor) and x.requires_grad for x in args)


def may_require_grad(args: Iterable[Any]) -> bool:
    """Tell whether a gradient may be asked for.

    Under a function transform a tensor may not say that it requires one.
    """
    return torch.is_grad_enabled() and (
        torch._C._are_functorch_transforms_active() or any_requires_grad(args)
    )


class Operator:
    """A torch operator with a name of its own: it changes none of its arguments and returns none of them.

    It does what `torch.library.custom_op` does, which loads torch's compiler at the first call, and that
    takes seconds.
    """

    def __init__(self, name: str, function: Callable[..., Any], *, differentiable: bool) -> None:
        self.name, self.function = f"linbench::{name}", function
        schema = torch.library.infer_schema(function, mutates_args=())
        self.lists = "Tensor[]" in schema  # whether an argument is a list of tensors
        _LIBRARY.define(name + schema)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        self.packet = getattr(torch.ops.linbench, name).default
        self.with_gradient: Callable[..., Any] = self.packet
        if not differentiable:
            torch.library.register_autograd(self.name, self._refuse, lib=_LIBRARY)

    def __call__(self, *args: Any) -> Any:
        """Call the registered operator if torch is tracing, else the function itself.

        That costs the host less.
        """
        if is_traced():
            return self.packet(*args)
        return (
            self.with_gradient(*args)
            if torch.is_grad_enabled() and (self.lists or any_requires_grad(args))
            else self.function(*args)
        )

    def _refuse(self, *gradients: Any) -> Any:
        raise RuntimeError(f"{self.name} has no derivative")

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register the function that makes results without numbers."""
        torch.library.register_fake(self.name, function, lib=_LIBRARY)
        return function

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """Register a backward, with the arguments of `torch.library.register_autograd`."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context, lib=_LIBRARY)

        def forward(ctx: Any, *args: Any) -> Any:
            output = self.function(*args)
            setup_context(ctx, args, output)
            return output

        if not self.lists:  # whose tensors an autograd.Function does not track
            methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
            self.with_gradient = type(self.name, (Function,), methods).apply  # type: ignore[attr-defined]

    def register_vmap(self, function: Callable[..., Any]) -> None:
        """Register a rule, with the arguments of `torch.library.register_vmap`."""
        torch.library.register_vmap(self.name, function, lib=_LIBRARY)


def operator(name: str, *, differentiable: bool = True) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function a torch operator.

    Args:
        differentiable: whether `register_autograd` follows; if not, differentiating the operator is an error.
    """
    return partial(Operator, name, differentiable=differentiable)


def fold_replicas(operator: Operator) -> None:
    """Let `torch.vmap` stack an operator by `vmap_rule`."""
    operator.register_vmap(partial(vmap_rule, operator))


def apply_function(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a function, or only its forward where torch.compile sees that no gradient is wanted.

    The compiler would hand forward a context there, whether or not it has `setup_context`.
    """
    wanted = torch.is_grad_enabled() and any_requires_grad(args)
    if torch.compiler.is_compiling() and not wanted:
        return function.forward(*args)
    return function.apply(*args)  # type: ignore[no-untyped-call]

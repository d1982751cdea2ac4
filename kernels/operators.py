"""What every Triton operator shares: where it runs, and how replicas fold into the batch."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton kernels run in its interpreter, on the CPU. Triton itself reads the variable once, when it
is first imported."""

_INSTALLED = find_spec("triton") is not None


Backend = Literal["auto", "torch", "triton"]
"""Of a door that has a torch and a Triton form; "auto" takes the fastest that runs on the device."""

BACKENDS = get_args(Backend)


def runs_triton(x: Tensor) -> bool:
    """Whether Triton kernels take this tensor: it lies on a GPU, or kernels are interpreted; never float64,
    which they would round."""
    return _INSTALLED and (x.is_cuda or INTERPRETED) and x.dtype != torch.float64


def uses_triton(x: Tensor, backend: str) -> bool:
    """Whether a door that has a torch and a Triton form takes the latter: `backend` is "auto", "torch" or
    "triton".

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
def preferring(backend: str) -> Iterator[list[str]]:
    """Meanwhile every door that is left the choice takes this backend if it has it. The list gets an entry
    each time one does."""
    taken: list[str] = []
    _wished.append((backend, taken))
    try:
        yield taken
    finally:
        _wished.pop()


def choose_backend(
    backend: str, backends: Collection[str], x: Tensor, *, otherwise: str, empty: str = "reference"
) -> str:
    """Which of its `backends` a door takes for x: the one that is named; for "auto" the one that is wished,
    or else Triton where the door has it and it runs, and elsewhere `otherwise`. Whichever that is, an x
    without any numbers, as of no sequences, goes to `empty`.

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
    """See that tensors [B, T, H, K], by their names, have a head at least, and a number in it. Raises
    ValueError."""
    if any(0 in x.shape[2:] for x in shaped.values()):
        raise ValueError(
            f"{', '.join(shaped)} have at least one head, of at least one number, not"
            f" {[tuple(x.shape) for x in shaped.values()]}"
        )


_NOTHING = nullcontext()


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """What is inside computes in the dtypes that it chooses itself, whatever torch.autocast says for the
    device of x."""
    at_work = torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type)
    return torch.autocast(x.device.type, enabled=False) if at_work else _NOTHING


def product_dtype(x: Tensor) -> torch.dtype:
    """In which a product of matrices takes x: its own, or that of torch.autocast where this is at work."""
    kind = x.device.type
    return (
        torch.get_autocast_dtype(kind)
        if torch.is_autocast_enabled(kind) and x.dtype != torch.float64
        else x.dtype
    )


def reduce_partials(parts: Tensor) -> Tensor:
    """parts [R, P, ...] in float32, a part from each of P programs -> [R, ...], the same every time."""
    # as a product: torch's own sum leaves a GPU idle where there are few columns
    ones = torch.ones(len(parts), 1, parts.shape[1], device=parts.device)
    with without_autocast(parts):
        return torch.bmm(ones, parts.flatten(2)).view(len(parts), *parts.shape[2:])


def is_traced() -> bool:
    """Whether something of torch's looks on, and must be told of operators by name: its compiler, a function
    transform such as torch.vmap, or a mode that counts them or computes without numbers."""
    active: bool = (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )
    return active


def stacked() -> bool:
    """Whether torch.vmap is the transform at work, the innermost if there are several."""
    functorch = torch._C._functorch
    level = functorch.peek_interpreter_stack()
    return level is not None and level.key() == functorch.TransformType.Vmap


def vmap_rule(operator: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    """Replicas become more of the batch, under `torch.vmap`.

    For operators whose every tensor argument and result, where it is there at all, has a first dimension over
    which they work
    independently: the batch, or for weights a number of groups that divides it (batch row b of B belongs to
        group b // (B / groups)).
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


Function: Any = torch.autograd.function._SingleLevelFunction
"""As torch.autograd.Function, without what that does at every call for function transforms: to be applied
where nothing is `is_traced`."""

_LIBRARY: Any = torch.library.Library("linbench", "FRAGMENT")  # type: ignore[no-untyped-call]


def any_requires_grad(args: Iterable[Any]) -> bool:
    """Whether one of the tensors among them does."""
    return any(isinstance(x, Tensor) and x.requires_grad for x in args)


def may_require_grad(args: Iterable[Any]) -> bool:
    """Whether one may be asked for: under a function transform what is stacked does not say so."""
    return torch.is_grad_enabled() and (
        torch._C._are_functorch_transforms_active() or any_requires_grad(args)
    )


class Operator:
    """A function of tensors as an operator of torch, by a name of its own: it changes none of its arguments
    and returns none of them.

    As `torch.library.custom_op`, which loads torch's compiler at the first call, and that takes seconds.
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
        """What torch knows by the name; where nothing of torch's looks on, the function itself, which costs
        the host less."""
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
        """Results without numbers."""
        torch.library.register_fake(self.name, function, lib=_LIBRARY)
        return function

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """As of `torch.library.register_autograd`."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context, lib=_LIBRARY)

        def forward(ctx: Any, *args: Any) -> Any:
            output = self.function(*args)
            setup_context(ctx, args, output)
            return output

        if not self.lists:  # whose tensors an autograd.Function does not track
            methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
            self.with_gradient = type(self.name, (Function,), methods).apply  # type: ignore[attr-defined]

    def register_vmap(self, function: Callable[..., Any]) -> None:
        """As of `torch.library.register_vmap`."""
        torch.library.register_vmap(self.name, function, lib=_LIBRARY)


def operator(name: str, *, differentiable: bool = True) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function one. differentiable: `register_autograd` follows; otherwise to differentiate it is an
    error."""
    return partial(Operator, name, differentiable=differentiable)


def fold_replicas(operator: Operator) -> None:
    """Let `torch.vmap` stack the operator by `vmap_rule`."""
    operator.register_vmap(partial(vmap_rule, operator))


def apply_function(function: type[torch.autograd.Function], *args: Any) -> Any:
    """The function, or where torch.compile sees that no gradient is wanted its forward: it would hand that a
    context, with `setup_context` or without."""
    wanted = torch.is_grad_enabled() and any_requires_grad(args)
    if torch.compiler.is_compiling() and not wanted:
        return function.forward(*args)
    return function.apply(*args)  # type: ignore[no-untyped-call]

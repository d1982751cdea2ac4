"""Operations and bytes of torch's calls, counted while they are done."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
ONE, TWO = (
    (aten.add, aten.add_, aten.sub, aten.sub_, aten.mul, aten.mul_, aten.div, aten.rsub),
    (aten.addcmul, aten.addcmul_),
)


class Arithmetic(TorchDispatchMode):
    """`products`: floating-point operations of products of matrices, as torch's own counter has them.
    `elementwise`: sums, differences, products and quotients element by element, and sums over a dimension.
    Other functions of an element count nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.elementwise = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet in flop_registry:
            self.products += flop_registry[packet](*args, **(kwargs or {}), out_val=result)
        elif isinstance(result, Tensor) and result.is_floating_point():
            if packet in ONE:
                self.elementwise += result.numel()
            elif packet in TWO:
                self.elementwise += 2 * result.numel()
            elif packet is aten.sum:
                self.elementwise += args[0].numel() - result.numel()
        return result


class Touched(TorchDispatchMode):
    """Bytes of floating-point tensors that were there before and are read, each counted once."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.known = {
            x.untyped_storage().data_ptr(): x.nbytes
            for x in tree_leaves(before)
            if isinstance(x, Tensor) and x.is_floating_point()
        }
        self.read: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() in self.known:
                self.read.add(x.untyped_storage().data_ptr())
        return func(*args, **(kwargs or {}))

    @property
    def bytes(self) -> int:
        """The bytes of all of them."""
        return sum(self.known[place] for place in self.read)


def counted(call: Callable[[], Any]) -> Arithmetic:
    """Count the arithmetic of a call without gradients."""
    with Arithmetic() as arithmetic, torch.no_grad():
        call()
    return arithmetic

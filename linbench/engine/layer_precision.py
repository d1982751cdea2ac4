"""The precision that a layer computes in, whatever it is given."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

HALF_LIMIT = 5e-2
"""The difference that rounding to bfloat16, whose step is 8e-3, may make of what is equal."""


class Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A watch over everything that is computed from `given` while it is entered. Constants do not count, such
    as positions as floats."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.coarsest = torch.float64
        """The floating-point type with the fewest digits so far."""
        self._derived = WeakIdKeyDictionary()
        self._note(given)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf in self._derived for leaf in tree_leaves((args, kwargs))):
            self._note(leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor))
        return found

    def _note(self, these: Iterable[Tensor]) -> None:
        for tensor in these:
            # what is true or false carries no digits on
            if tensor.is_floating_point() or tensor.is_complex():
                self._derived[tensor] = True
                if torch.finfo(tensor.dtype).eps > torch.finfo(self.coarsest).eps:
                    self.coarsest = tensor.dtype.to_real()


def limit(precision: torch.dtype, double: float, single: float) -> float:
    """Return the difference that is allowed between equal things: `double` where all is computed in float64,
    `single` in float32."""
    return {torch.float64: double, torch.float32: single}.get(precision, HALF_LIMIT)

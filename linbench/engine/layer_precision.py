"""The precision that a layer computes in, whatever the dtype of its input."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from linbench.engine.dispatch_mode import WatchingMode

HALF_LIMIT = 5e-2
"""Relative difference up to which results in bfloat16 count as equal.

It is about six of its rounding steps of 8e-3.
"""


class Witness(WatchingMode):
    """A mode of torch that notes the dtypes of everything computed from `given` while it is entered.

    Constants do not count, such as positions as floats.
    """

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.coarsest = torch.float64
        """The floating-point dtype with the fewest digits so far."""
        self._derived = WeakIdKeyDictionary()
        self._note(inputs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf in self._derived for leaf in tree_leaves((args, kwargs))):
            self._note(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        return result

    def _note(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            # integers and booleans have no rounding
            if tensor.is_floating_point() or tensor.is_complex():
                self._derived[tensor] = True
                if torch.finfo(tensor.dtype).eps > torch.finfo(self.coarsest).eps:
                    self.coarsest = tensor.dtype.to_real()


def limit(precision: torch.dtype, double: float, single: float) -> float:
    """Return the difference up to which values count as equal.

    Args:
        precision: the dtype that they were computed in; any but the two below has `HALF_LIMIT`.
        double: the limit for float64.
        single: the limit for float32.
    """
    return {torch.float64: double, torch.float32: single}.get(precision, HALF_LIMIT)

"""The global random generators that a layer may use: those of Python, numpy and torch (on a CPU)."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class States(NamedTuple):
    """The states of the three generators."""

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch: Tensor


def states() -> States:
    """Return the current states."""
    numpy: Any = np.random.get_state(legacy=False)
    return States(random.getstate(), numpy, torch.default_generator.get_state())


def set_states(new: States) -> None:
    """Set the generators to these states."""
    random.setstate(new.python)
    np.random.set_state(new.numpy)
    torch.default_generator.set_state(new.torch)


def seed_all(key: int) -> None:
    """Seed the three generators with a key of at most 63 bits. Those of GPUs are left alone."""
    random.seed(key)
    np.random.seed(key % 2**32)
    torch.default_generator.manual_seed(key)


@contextmanager
def preserve() -> Iterator[None]:
    """Restore the generators afterwards."""
    before = states()
    try:
        yield
    finally:
        set_states(before)

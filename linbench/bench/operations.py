"""Operations that are timed: those that kernel families declare in their `cases.py`."""

from importlib import import_module

from linbench.bench.shapes import parse
from linbench.kernels.family import Operation, Shape, families

SHAPES = {
    "cuda": (
        Shape(256, 256, 2, 64),
        Shape(512, 64, 1, 64),
        Shape(8, 4096, 16, 128),
        Shape(1, 65536, 16, 128),
    ),
    "cpu": (Shape(32, 256, 2, 64), Shape(64, 64, 1, 64)),
}
"""Shapes that are measured if none are given, by kind of device."""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Parse `B256xT256xH2xD64,...`. Raises UserError: it is something else."""
    return parse(text, Shape, "B256xT256xH2xD64,B8xT4096xH16xD128")


def all_operations() -> dict[str, Operation]:
    """Return every operation by name, family by family."""
    operations: dict[str, Operation] = {}
    for family in families().values():
        operations |= family.operations
    return operations


def kernel_versions(operation: str) -> dict[str, int]:
    """Return the version of an operation's kernels, by family."""
    return {
        name: import_module(f"linbench.kernels.{name}").VERSION
        for name, family in families().items()
        if operation in family.operations
    }

"""Laws that any mixer must keep, each a function marked with `@law` in a file of this folder.

A law is found by a look into the folder, and no list names it.
"""

from collections.abc import Callable
from typing import NamedTuple

from linbench.common.scan import submodules
from linbench.engine.layer_under_test import LayerUnderTest

__all__ = ["LAST", "Found", "Law", "all_laws", "law"]

Found = tuple[bool, str]
"""A pair: True if the law holds, and what was measured."""

LAST = 1000
"""Place of laws that name none."""


class Law(NamedTuple):
    """A law of mixers.

    Args:
        name: what reports call it.
        asks: what it asks of a mixer, in a sentence.
        place: laws are asked in the order of their places. An exception is blamed on the first that meets it.
        holds: looks at a mixer and tells whether the law holds. Raises UndeclaredError if the mixer does not
            declare what the law is about.
        decisive: whether a mixer that breaks it is asked nothing more.
        basic: whether nothing can be compared if a mixer breaks it, so that later laws are not judged.
    """

    name: str
    asks: str
    place: int
    holds: Callable[[LayerUnderTest], Found]
    decisive: bool = False
    basic: bool = False


def law(
    name: str, *, place: int = LAST, decisive: bool = False, basic: bool = False
) -> Callable[[Callable[[LayerUnderTest], Found]], Law]:
    """Make a function a law, which asks what its docstring says. Arguments are those of `Law`."""

    def mark(holds: Callable[[LayerUnderTest], Found]) -> Law:
        return Law(name, " ".join((holds.__doc__ or "").split()), place, holds, decisive, basic)

    return mark


def all_laws() -> dict[str, Law]:
    """Return every law in this folder by name, in the order in which they are asked."""
    import linbench.verify.laws as package

    laws = {
        part.name: part
        for module in submodules(package)
        for part in vars(module).values()
        if isinstance(part, Law)
    }
    return dict(sorted(laws.items(), key=lambda item: item[1].place))

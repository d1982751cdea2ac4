"""Examples in words, no longer than a reader looks at."""

from collections.abc import Sequence


def join_examples(items: Sequence[str], most: int = 8, between: str = "; ") -> str:
    """The first of them, and how many more there are."""
    left = len(items) - most
    return between.join([*items[:most], *([f"and {left} more"] if left > 0 else [])])


def shorten(tokens: Sequence[int], most: int = 60) -> str:
    """A sequence, what lies in the middle of a long one left out."""
    if len(tokens) <= 2 * most:
        return " ".join(map(str, tokens))
    return f"{shorten(tokens[:most])} ... {shorten(tokens[-most:])}"

"""Short texts about examples."""

from collections.abc import Sequence


def join_examples(items: Sequence[str], most: int = 8, between: str = "; ") -> str:
    """Return the first items joined, and how many more there are."""
    left = len(items) - most
    if left <= 0:
        return between.join(items)
    return between.join([*items[:most], f"and {left} more"])


def shorten(tokens: Sequence[int], most: int = 60) -> str:
    """Return a sequence as text, without the middle of a long one."""
    if len(tokens) <= 2 * most:
        return " ".join(map(str, tokens))
    return f"{shorten(tokens[:most])} ... {shorten(tokens[-most:])}"

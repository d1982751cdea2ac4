"""Seeds and lengths as the command line takes them."""

from collections.abc import Iterable

from linbench.common.errors import UserError
from linbench.common.numbers import LARGEST, whole

LONGEST = 4096
"""Times the task's length: more is no test that ends."""


def parse_lengths(text: str) -> list[int]:
    """Return the multiples in `1x,2x,4x`, each once. Raises UserError."""
    parts = [part.strip() for part in text.split(",")]
    found = [whole(part[:-1], 1, LONGEST) if part.endswith("x") else None for part in parts]
    if None in found:
        raise UserError(
            f"test lengths are multiples of the task's such as 1x,2x,4x, up to {LONGEST}x, not '{text}'."
        )
    return list(dict.fromkeys(times for times in found if times is not None))


MOST = 10_000
"""Seeds at once; more are a slip of the keyboard."""


def parse_seeds(given: str | int | Iterable[int]) -> list[int]:
    """Return the seeds in `0,1,2` or `0-4`, or seeds themselves, one or several, each once. Raises
    UserError."""
    if isinstance(given, str):
        parts: list[object] = [*given.split(",")]
    else:
        parts = [*given] if isinstance(given, Iterable) else [given]
    seeds: list[int] = []
    for part in parts or [None]:
        first, last = _ends(part)
        if first is None or last is None or last < first:
            raise UserError(
                f"seeds are numbers such as 0,1,2 or 0-4, not '{_written(given)}'; the largest is {LARGEST}."
            )
        if last - first >= MOST - len(seeds):
            raise UserError(f"seeds are at most {MOST} at once, not '{_written(given)}'.")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def _ends(part: object) -> tuple[int | None, int | None]:
    """The first and the last seed of a part; None: it is no number."""
    if not isinstance(part, str):
        return whole(part), whole(part)
    first, dash, last = part.partition("-")
    return whole(first), whole(last if dash else first)


def _written(given: str | int | Iterable[int]) -> str:
    """As a user would write them; a number of thousands of digits cannot be written as such."""
    try:
        return (
            ",".join(map(str, given))
            if isinstance(given, Iterable) and not isinstance(given, str)
            else str(given)
        )
    except ValueError:
        return "a number of thousands of digits"

"""Readers of seeds and test lengths as the command line takes them."""

from collections.abc import Iterable

from linbench.common.errors import UserError
from linbench.common.numbers import LARGEST, whole_number

LONGEST = 4096
"""The largest multiple of the task's length to test at; longer tests would not end."""


def parse_lengths(text: str) -> list[int]:
    """Return the multiples in a list such as `1x,2x,4x`, each once.

    Raises UserError: the text is no such list.
    """
    parts = [part.strip() for part in text.split(",")]
    multiples = [whole_number(part[:-1], 1, LONGEST) if part.endswith("x") else None for part in parts]
    if None in multiples:
        raise UserError(
            f"test lengths must be multiples of the task's length such as 1x,2x,4x, up to {LONGEST}x, not"
            f" '{text}'."
        )
    return list(dict.fromkeys(times for times in multiples if times is not None))


MOST = 10_000
"""The most seeds of one run; more is a slip of the keyboard."""


def parse_seeds(given: str | int | Iterable[int]) -> list[int]:
    """Return the seeds that are given as text such as `0,1,2` or `0-4`, or as numbers, each once.

    Raises UserError: something else is given, or more than `MOST` seeds.
    """
    if isinstance(given, str):
        parts: list[object] = [*given.split(",")]
    else:
        parts = [*given] if isinstance(given, Iterable) else [given]
    seeds: list[int] = []
    for part in parts or [None]:
        first, last = _first_and_last(part)
        if first is None or last is None or last < first:
            raise UserError(
                f"seeds must be whole numbers up to {LARGEST}, such as 0,1,2 or 0-4, not"
                f" '{_format_seeds(given)}'."
            )
        if last - first >= MOST - len(seeds):
            raise UserError(f"a run takes at most {MOST:,} seeds, fewer than in '{_format_seeds(given)}'.")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def _first_and_last(part: object) -> tuple[int | None, int | None]:
    if not isinstance(part, str):
        return whole_number(part), whole_number(part)
    first, dash, last = part.partition("-")
    return whole_number(first), whole_number(last if dash else first)


def _format_seeds(given: str | int | Iterable[int]) -> str:
    try:
        if isinstance(given, str) or not isinstance(given, Iterable):
            return str(given)
        return ",".join(map(str, given))
    except ValueError:  # Python does not print integers with thousands of digits
        return "a number of thousands of digits"

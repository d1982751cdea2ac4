"""Seeds as they are written."""

from collections.abc import Iterable

from linbench.common.errors import UserError

LARGEST = 2**63 - 1
"""A seed that a tensor holds."""

MOST = 10_000
"""Seeds at once; more are a slip of the keyboard."""


def parse_seeds(given: str | int | Iterable[int]) -> list[int]:
    """`0,1,2` or `0-4`, or seeds themselves, one or several -> seeds without repetition. Raises UserError."""
    text = ",".join(map(str, given)) if isinstance(given, Iterable) and not isinstance(given, str) else str(given)
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not all(map(_is_seed, numbers)) or int(numbers[-1]) < int(first):
            raise UserError(f"seeds are numbers such as 0,1,2 or 0-4, not '{text}'; the largest is {LARGEST}.")
        found = range(int(first), int(numbers[-1]) + 1)
        if found.stop - found.start > MOST - len(seeds):
            raise UserError(f"seeds are at most {MOST} at once, not '{text}'.")
        seeds += found
    return list(dict.fromkeys(seeds))


def _is_seed(number: str) -> bool:
    return number.isascii() and number.isdigit() and len(number) <= len(str(LARGEST)) and int(number) <= LARGEST

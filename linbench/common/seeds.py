"""Seeds as they are written."""

from linbench.common.errors import UserError


def parse_seeds(text: str) -> list[int]:
    """`0,1,2` or `0-4` -> seeds without repetition. Raises UserError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not all(number.isascii() and number.isdigit() for number in numbers) or int(numbers[-1]) < int(first):
            raise UserError(f"seeds are numbers such as 0,1,2 or 0-4, not '{text}'.")
        seeds += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(seeds))

"""Test lengths as they are written."""

from linbench.common.errors import UserError


def parse_lengths(text: str) -> list[int]:
    """`1x,2x,4x` -> multiples without repetition. Raises UserError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.endswith("x") and part[:-1].isascii() and part[:-1].isdigit() and int(part[:-1]) >= 1 for part in parts):
        raise UserError(f"test lengths are multiples of the task's such as 1x,2x,4x, not '{text}'.")
    return list(dict.fromkeys(int(part[:-1]) for part in parts))

"""Test lengths as they are written."""

from linbench.common.errors import UserError
from linbench.common.numbers import whole

LONGEST = 4096
"""Times the task's length: more is no test that ends."""


def parse_lengths(text: str) -> list[int]:
    """Return the multiples in `1x,2x,4x`, each once. Raises UserError."""
    parts = [part.strip() for part in text.split(",")]
    found = [whole(part[:-1], 1, LONGEST) if part.endswith("x") else None for part in parts]
    if None in found:
        raise UserError(f"test lengths are multiples of the task's such as 1x,2x,4x, up to {LONGEST}x, not '{text}'.")
    return list(dict.fromkeys(times for times in found if times is not None))

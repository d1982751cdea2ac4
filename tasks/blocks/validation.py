"""Checks of settings that several tasks share."""


def refuse_odd(name: str, value: int, why: str) -> None:
    """Raise ValueError, in one sentence, unless a setting is even."""
    if value % 2:
        raise ValueError(f"{name} must be even, since {why}; {value} is odd, {value + 1} would do")

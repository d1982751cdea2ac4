"""What several tasks refuse."""


def refuse_odd(name: str, value: int, why: str) -> None:
    """Raises ValueError, in one sentence, unless the setting of that name is even."""
    if value % 2:
        raise ValueError(f"{name} must be even, for {why}; {value} is odd, {value + 1} would do")

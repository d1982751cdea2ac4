"""Checks of settings that several tasks share."""


def refuse_odd(name: str, value: int, why: str) -> None:
    """Raise ValueError, in one sentence, unless a setting is even."""
    if value % 2:
        raise ValueError(f"{name} must be even, since {why}; {value} is odd, {value + 1} would do")


def refuse_too_many_unused(vocab_size: int, unused: int, *, least: int) -> None:
    """Raise ValueError, in one sentence, unless at least `least` tokens of a vocabulary are used."""
    if vocab_size - unused < least:
        raise ValueError(
            f"of {vocab_size} tokens {unused} are unused, but at least {least} are needed; a vocab_size of"
            f" {unused + least} would do"
        )

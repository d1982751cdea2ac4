"""Numbers written out for readers."""


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 cell`, `2 cells`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration such as `3 days`, `1 h 5 min`, `5 min` or `5 s`."""
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    if hours >= 48:
        return f"{hours / 24:,.0f} days"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min"
    return f"{seconds:.0f} s"


def format_decimal(value: float) -> str:
    """Return a number with three decimals, such as `0.231`, or a tiny one as `2.5e-16`."""
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.0001 else f"{value:.1e}"

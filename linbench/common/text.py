"""Numbers in words."""


def counted(number: int, what: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """`3 days`, `1 h 5 min`, `5 min`, `5 s`."""
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    return (
        f"{hours / 24:,.0f} days"
        if hours >= 48
        else f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min"
        if minutes
        else f"{seconds:.0f} s"
    )


def decimal(value: float) -> str:
    """`0.231`; `2.5e-16` of what is far from what three decimals tell."""
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.0001 else f"{value:.1e}"

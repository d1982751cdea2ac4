"""Numbers in words."""


def counted(number: int, what: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """`1 h 5 min`, `5 min`, `5 s`."""
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"

"""What became of other processes."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether it runs; one that nobody has waited for yet does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False

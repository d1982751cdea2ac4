"""Other processes: whether they run, and what a program imports in one of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(program: str, *modules: str) -> set[str]:
    """Return which of some modules a program has imported when it ends, in the folder of the project."""
    seen = f"{program}\nimport sys\nprint(*{{*{modules!r}}} & {{*sys.modules}})\n"
    ended = subprocess.run([sys.executable, "-c", seen], cwd=ROOT, capture_output=True, text=True, check=True)
    return {*ended.stdout.split()}


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False

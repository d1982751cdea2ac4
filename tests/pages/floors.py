"""The table of presets on which a shallow baseline scores well, in docs/tasks.md."""

from linbench.experiments.floors import ERROR, FAILS, PASSES, stored_floor, task_key
from tests.tasks.floors import presets


def table() -> str:
    """Return a row for every preset that does not pass, in the order of tasks."""
    rows = ["| preset | chance | floor | of the way | baseline |", "|---|---|---|---|---|"]
    for name, preset, task in presets().values():
        floor = stored_floor(task_key(task))
        if floor is None or floor.strongest is None or floor.verdict == "passes":
            continue
        way = f"{floor.leak(floor.strongest):.0%}"
        way = f"**{way}**" if floor.verdict == "fails" else way
        cells = f"`{name}/{preset}`", f"{floor.chance:.3f}", f"{floor.level:.3f}", way, f"`{floor.strongest}`"
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def error() -> list[str]:
    """Return the error of the bound on a floor, in percent."""
    return [f"{100 * ERROR:.0f}"]


def limits() -> list[str]:
    """Return the shares of the way up to which a preset passes, and beyond which it fails, in percent."""
    return [f"{100 * PASSES:.0f}", f"{100 * FAILS:.0f}"]

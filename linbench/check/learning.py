"""Does it learn? The one law that takes training."""

from linbench.cell import Cell
from linbench.check import Finding
from linbench.measure import measure

ACCURACY = 0.9
"""That two layers reach on `mqar quick`, whatever memory they have; a mixer that sees no neighbours cannot."""

ASKS = f"Two layers of it learn mqar quick to an accuracy of {ACCURACY}."


def learns(cell: Cell) -> Finding:
    """Train the cell."""
    (result,) = measure([cell], lambda report: None)
    if result["status"] != "ok":
        return Finding("learning", "WRONG", f"{result['status']}: {result['reason']}", ASKS)
    accuracy = result["metrics"]["accuracy"]
    return Finding("learning", "ok" if accuracy >= ACCURACY else "WRONG", f"accuracy {accuracy:.3f} in {result['seconds']:.0f} s", ASKS)

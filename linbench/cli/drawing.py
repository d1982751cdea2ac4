"""Drawing of what a verb has just measured, into the folder of its results."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from linbench.common.errors import UserError
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.report.figure import Drawing
    from linbench.results.store import Store


def draw_beside(store: "Store", make: "Callable[[], list[Drawing]]") -> int:
    """Draw figures into the folder of a store, say where they are, and return an exit code.

    Nothing is drawn beside results that cannot be added to. A failure costs only the figures. It is an error
    (code 6) if they cannot be written.

    Args:
        store: the results.
        make: returns the figures.
    """
    if store.read_only:
        return 0
    from linbench.common.files import folder_below
    from linbench.report.figure import save

    try:
        folder = folder_below(store.folder, "figures", "--results")
        for path in save(make(), folder, option="--results"):
            if path.suffix != ".txt":
                tell(f"drew {path}")
    except UserError as error:
        tell(f"linbench: {error}")
        return error.exit_code
    except Exception as error:
        tell(
            f"linbench: the figures could not be drawn ({type(error).__name__}: {error}). The results are"
            " kept; `linbench figures` draws them again."
        )
    return 0

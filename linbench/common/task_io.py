"""What goes into a model and what must come out of it: all that a backbone needs to know of a task."""

from typing import Literal, NamedTuple


class IO(NamedTuple):
    """Token ids or vectors in, token ids or vectors out: of each two, one is None.

    readout: `place` reads each answer from the stream where it is due; `code` reads all of them from the last
        token's stream alone, as the
    decoder of an auto-encoder does.
    """

    vocab_in: int | None
    vocab_out: int | None
    d_in: int | None = None
    d_out: int | None = None
    readout: Literal["place", "code"] = "place"

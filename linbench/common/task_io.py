"""The inputs and outputs of a task: all that a backbone needs to know of it."""

from typing import Literal, NamedTuple


class IO(NamedTuple):
    """The sizes of inputs and outputs: vocabularies for token ids, or dimensions for vectors.

    One of `vocab_in` and `d_in` is None, and one of `vocab_out` and `d_out`.

    readout: `place` reads each answer from the residual stream where it is due; `code` reads all answers from
    the last token's stream alone, as the decoder of an auto-encoder does.
    """

    vocab_in: int | None
    vocab_out: int | None
    d_in: int | None = None
    d_out: int | None = None
    readout: Literal["place", "code"] = "place"

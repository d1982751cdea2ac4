"""What goes into a model and what must come out of it: all that a backbone needs to know of a task."""

from typing import NamedTuple


class IO(NamedTuple):
    """Token ids in, token ids out."""

    vocab_in: int
    vocab_out: int

"""A sequence-mixing layer seen as an online learner: what it fits, in which memory, by which step."""

from typing import NamedTuple


class Learner(NamedTuple):
    """A description of how a layer learns values by their keys, one token after the other (2501.12352).

    An entry that begins with "none: " says what is there where the view does not fit. Published settings
    count. docs/which-optimiser.md has the equations and a table of all variants.

    loss: what the write of a token lowers.
    memory: what is changed and later read.
    optimiser: the step that lowers the loss.
    retention: how what was learned is kept or forgotten.
    """

    loss: str
    memory: str
    optimiser: str
    retention: str


WEIGHTED_MEAN = Learner(
    loss="squared error of a constant, weighted by match",
    memory="every key and value",
    optimiser="exact: the weighted mean",
    retention="keeps all; with a window, the last w tokens",
)
"""Softmax attention: of all vectors o, the one with the least sum of weight_s |o - v_s|^2 for a query."""

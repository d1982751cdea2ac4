"""A stopwatch that says where the time of a group goes."""

import time
from typing import Final

BUILDING: Final = "building"
"""Until the models of a group stand on the device with their optimizer."""

FIRST_STEPS: Final = "first steps"
"""Steps in which a GPU's kernels are compiled and the step is captured. A CPU has none."""

TRAINING: Final = "training"
"""All other steps, with the reading of losses."""

EVALUATION: Final = "evaluation"
"""Validation while training, and the test."""

PARTS: Final = (BUILDING, FIRST_STEPS, TRAINING, EVALUATION)
"""The parts that are measured. What else a group takes belongs to none of them."""


class Meter:
    """Seconds of the work on a group by part, and the tokens that it trained on.

    At any moment it counts for one part or for none, so the parts never take more than the clock.
    """

    def __init__(self) -> None:
        """Begin with nothing, and count for no part."""
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.tokens = 0
        """Tokens trained on, summed over replicas; what a checkpoint or trunk brought is not among them."""
        self._part: str | None = None
        self._since = 0.0

    def turn_to(self, part: str | None) -> None:
        """Count for this part from now on, or for none."""
        if part == self._part:
            return
        now = time.perf_counter()
        if self._part is not None:
            self.seconds[self._part] += now - self._since
        self._part, self._since = part, now

"""When a ladder ends."""

import pytest

from linbench.results.rungs import LEAST_GAIN, NEAR_OPTIMUM, Rung, ending
from linbench.results.scores import Levels


@pytest.mark.parametrize(
    ("accuracies", "losses", "most", "expected"),
    [
        ([0.2], [3.0], 6, None),
        ([NEAR_OPTIMUM], [3.0], 6, "optimum"),
        ([0.2, 0.205], [3.0, 3.0], 6, None),
        ([0.2, 0.205, 0.21], [3.0, 3.0, 3.0], 6, "flat"),
        ([0.2, 0.205, 0.21], [3.0, 2.9, 2.9], 6, None),
        ([0.2, 0.205, 0.2 + 2 * LEAST_GAIN], [3.0, 3.0, 3.0], 6, None),
        ([0.2, 0.4, 0.4, 0.395], [3.0, 2.0, 2.0, 2.0], 6, "flat"),
        ([0.2, 0.4, 0.4, 0.38], [3.0, 2.0, 2.0, 2.0], 6, None),
        ([0.2, 0.4], [3.0, 2.0], 2, "cap"),
        ([0.2, None], [3.0, 3.0], 6, "failed"),
        ([0.11, 0.1, 0.12, 0.11], [3.0, 3.0, 3.0, 3.0], 6, None),
        ([0.11, 0.1, 0.12, 0.11], [3.0, 3.0, 3.0, 3.0], 4, "cap"),
    ],
)
def test_a_ladder_ends_at_the_optimum_when_it_is_flat_or_at_the_cap(
    accuracies: list[float | None], losses: list[float], most: int, expected: str | None
) -> None:
    rungs = [Rung(*each) for each in zip(accuracies, losses, strict=True)]
    assert ending(rungs, Levels(chance=0.1, optimum=1.0), most=most) == expected


def test_the_optimum_of_a_noisy_task_ends_a_ladder() -> None:
    assert ending([Rung(0.6, 1.0)], Levels(chance=0.1, optimum=0.6), most=6) == "optimum"

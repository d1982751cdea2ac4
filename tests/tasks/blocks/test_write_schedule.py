from itertools import permutations
from typing import get_args

import pytest

from linbench.tasks.blocks.write_schedule import Schedule, distinct_variables

COUNTS = (1, 2, 3)


def orders(schedule: Schedule) -> list[list[int]]:
    """All orders of the writes of variables that are written so often."""
    if schedule == "sequential":
        return [[v for v in order for _ in range(COUNTS[v])] for order in permutations(range(3))]
    if schedule == "blockwise":
        return [[*first, *second, 2] for first in permutations(range(3)) for second in permutations((1, 2))]
    return [list(order) for order in permutations([0, 1, 1, 2, 2, 2])]


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_how_many_variables_were_met(schedule: Schedule) -> None:
    every = orders(schedule)
    for writes, shares in enumerate(distinct_variables(COUNTS, schedule).tolist()):
        assert shares == pytest.approx(
            [sum(len(set(order[:writes])) == n for order in every) / len(every) for n in range(4)]
        )

"""Mean ranks over tasks."""

import numpy as np
import pytest

from linbench.results.ranks import ranks

DEMSAR = """
4 3 2 1 | 1 2 3 4 | 4 1 2 3 | 4 1 3 2 | 4 2 3 1 | 1 2.5 4 2.5 | 3 2 4 1
2.5 2.5 4 1 | 4 3 2 1 | 2.5 2.5 2.5 2.5 | 4 2.5 1 2.5 | 3 2 4 1 | 4 1 2 3 | 3 1 4 2
"""
"""The ranks of C4.5 and three variants of it on the fourteen data sets of table 6 there."""


def by_task(rows: list[list[float]]) -> dict[str, dict[str, float]]:
    from scipy.stats import rankdata

    return {
        str(place): dict(zip("abcdefgh", map(float, rankdata([-value for value in row])), strict=False))
        for place, row in enumerate(rows)
    }


def test_the_example_of_demsar() -> None:
    """Mean ranks 3.143, 2.000, 2.893 and 1.964; F is 3.69 with 3 and 39 degrees; 2.569 sqrt(20/84) = 1.25."""
    rows = [list(map(float, row.split())) for row in DEMSAR.replace("\n", "|").split("|") if row.strip()]
    found = ranks(by_task([[-rank for rank in row] for row in rows]))
    assert len(found.by_task) == 14
    assert [found.mean[name] for name in "abcd"] == pytest.approx([3.143, 2.0, 2.893, 1.964], abs=5e-4)
    assert list(found.mean) == ["d", "b", "c", "a"]
    assert found.p == pytest.approx(0.0197, abs=5e-4)
    assert found.agree
    assert found.difference == pytest.approx(1.25, abs=5e-3)


def test_tasks_that_have_nothing_in_common_seldom_agree() -> None:
    draw = np.random.default_rng(0)
    found = [ranks(by_task(draw.normal(size=(8, 7)).tolist())) for _ in range(300)]
    assert sum(one.agree for one in found) <= 25, "15 are expected"
    far = [max(one.mean.values()) - min(one.mean.values()) > one.difference for one in found]
    assert sum(far) <= 25


def test_the_same_order_everywhere_is_sure() -> None:
    found = ranks(by_task([[0.9, 0.5, 0.4, 0.3, 0.2]] * 4))
    assert found.p == 0
    assert list(found.mean.values()) == [1, 2, 3, 4, 5]

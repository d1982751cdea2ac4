"""The cells of shipped suites keep their identities: stored results are found by them."""

import json
from pathlib import Path

import pytest

from linbench.experiments.suite import shipped
from tests.experiments.golden import identities

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "suites.json").read_text(encoding="utf-8"))


def test_every_shipped_suite_is_among_them() -> None:
    assert sorted(GOLDEN) == sorted(shipped())


@pytest.mark.parametrize(
    "suite",
    [pytest.param(name, marks=() if GOLDEN[name]["cells"] < 100 else pytest.mark.slow) for name in GOLDEN],
)
def test_the_cells_of_a_suite_keep_their_identities(suite: str) -> None:
    assert identities(suite) == GOLDEN[suite]

"""The cells of shipped suites: they keep their identities, by which stored results are found."""

import json
from pathlib import Path

import pytest

from linbench.experiments.suite import load, shipped
from tests.experiments.golden import identities, planned

MISSING = {name: {"model base_conv, controlled"} for name in ("zoo-quick", "leaderboard-quick")}
"""Parts of shipped suites that linbench does not have, or not yet."""

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "suites.json").read_text(encoding="utf-8"))


def test_every_shipped_suite_is_among_them() -> None:
    assert sorted(GOLDEN) == sorted(shipped())


@pytest.mark.parametrize(
    "suite",
    [pytest.param(name, marks=() if GOLDEN[name]["cells"] < 100 else pytest.mark.slow) for name in GOLDEN],
)
def test_the_cells_of_a_suite_keep_their_identities_and_none_is_missing(suite: str) -> None:
    assert identities(suite) == GOLDEN[suite]
    _, missing = planned(suite)
    assert missing <= MISSING.get(suite, set())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "whole"), [("leaderboard", ("capacity", "zoo")), ("leaderboard-quick", ("zoo-quick",))]
)
def test_every_cell_of_a_leaderboard_is_one_of_the_suites_that_others_ran(
    name: str, whole: tuple[str, ...]
) -> None:
    """Otherwise a new layer would stand alone. A new model of the suites is one of the leaderboard."""
    others = {cell for one in whole for cell in planned(one)[0]}
    assert {*planned(name)[0]} <= others
    assert all(load(one).models == load(name).models for one in whole)

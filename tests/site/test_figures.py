"""The figures that only the site has."""

import math
from collections.abc import Callable

import pytest

from linbench.report.figure import Drawing
from linbench.results.capacity import Ranks
from linbench.site.figures import Panel, Point, Spoke, front, radar, scatter
from tests.helpers.hostile import TEXTS

POINTS = {"a": (1, 0.2), "b": (2, 0.5), "c": (3, 0.4), "d": (4, 0.9), "e": (4, 0.7)}
PANEL = Panel(
    "floats",
    "accuracy",
    {label: [Point(at, score, score - 0.1, score + 0.1)] for label, (at, score) in POINTS.items()},
    more_is_better=False,
    setting="",
)


def test_no_point_of_the_front_is_beaten_in_both_ways() -> None:
    assert [one.at for one in front(PANEL)] == [1, 2, 4]
    fast = front(PANEL._replace(more_is_better=True))
    assert [(one.at, one.score) for one in fast] == [(4, 0.9)]
    swapped = PANEL._replace(
        points={"a": [Point(9, 0.1, 0, 0)], "b": [Point(1, 0.3, 0, 0)]}, more_is_better=True
    )
    assert [one.at for one in front(swapped)] == [9, 1]


def test_the_best_stands_at_the_rim_and_the_worst_at_the_centre() -> None:
    spoke = Spoke("capacity", 2, Ranks(1, 3), among=5)
    assert [spoke.outward(rank) for rank in (1, 3, 5)] == [1, 0.5, 0]
    assert spoke._replace(among=1).outward(1) == 1


def spokes(name: str) -> list[Spoke]:
    return [Spoke(name, place + 1, Ranks(1, 3), among=5) for place in range(3)]


@pytest.mark.parametrize(
    "draw",
    [
        lambda text: radar("deltanet", spokes(text)),
        lambda text: scatter("deltanet", [text], [panel_of(text)]),
    ],
    ids=["radar", "scatter"],
)
def test_any_name_can_be_drawn(draw: Callable[[str], Drawing]) -> None:
    for text in TEXTS:
        assert draw(text).pictures(["svg"])["svg"].startswith(b"<svg")


def panel_of(text: str) -> Panel:
    return PANEL._replace(across=text, up=text, points={**PANEL.points, text: [Point(1, 0.5, 0.4, 0.6)]})


def test_an_interval_may_have_no_end() -> None:
    open_ = PANEL._replace(points={**PANEL.points, "z": [Point(2, 0.6, 0.5, math.inf)]})
    assert b"inf" not in scatter("deltanet", ["z"], [open_]).pictures(["svg"])["svg"]
    assert scatter("deltanet", ["z"], [open_]).fingerprint != scatter("deltanet", ["z"], [PANEL]).fingerprint


def test_a_figure_is_another_if_what_it_shows_is() -> None:
    one = scatter("deltanet", ["a"], [PANEL])
    assert one.fingerprint == scatter("deltanet", ["a"], [PANEL]).fingerprint
    assert one.fingerprint != scatter("deltanet", ["b"], [PANEL]).fingerprint
    assert radar("gla", spokes("x")).fingerprint != radar("gla", spokes("y")).fingerprint

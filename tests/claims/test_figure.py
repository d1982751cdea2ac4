from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes

from linbench.claims.figure import drawings
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from tests.helpers.claims import a_claim


def test_every_measure_with_its_rules_and_figures(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.91, 0.92]})
    stored = kept(claim, {"sum": [0.1, 0.1, 0.5]}, marks=["undertrained"])
    (drawing,) = drawings(verdict(claim, stored))
    assert drawing.slug == f"{claim.id}-cpu"
    text = next(iter(drawing.pictures(["svg"]).values())).decode()
    assert all(
        words in text
        for words in ("supported if: ", "refuted if: ", "delta", "sum", "0.910 (0.900 to 0.920)")
    )
    other = kept(claim, {"sum": [0.1, 0.1, 0.4]})
    assert drawings(verdict(claim, other))[0].fingerprint != drawing.fingerprint
    assert drawings(verdict(claim, Stored([]))) == []


def test_a_panel_of_which_nothing_is_there_is_drawn_empty(kept: Callable[..., Stored]) -> None:
    claim = a_claim(
        measures={"delta": {"model": "deltanet"}, "sum": {"model": "linear_attention", "of": "scaled"}}
    )
    (drawing,) = drawings(verdict(claim, kept(claim, {"delta": [0.9, 0.91, 0.92]})))
    text = next(iter(drawing.pictures(["svg"]).values())).decode()
    assert "0.910 (0.900 to 0.920)" in text
    assert "14 not run yet" in text


def test_dots_below_zero_are_whole(kept: Callable[..., Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Any] = []
    set_xlim = Axes.set_xlim
    monkeypatch.setattr(
        Axes,
        "set_xlim",
        lambda axes, *given, **named: (limits.append(given), set_xlim(axes, *given, **named))[1],
    )
    claim = a_claim(measure={"of": "scaled"})
    (drawing,) = drawings(verdict(claim, kept(claim, {"delta": [0.9, 0.9, 0.9], "sum": [0.16, 0.1, 0.1]})))
    drawing.pictures(["svg"])
    assert [given[0] for given in limits if len(given) == 2] == pytest.approx([(0.1 - 0.25) / 0.75 - 0.03])

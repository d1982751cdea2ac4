from collections.abc import Callable

from linbench.claims.picture import drawings
from linbench.claims.stored import Stored
from linbench.claims.verdict import verdict
from tests.linbench.claiming import a_claim


def test_every_measure_with_its_rules_and_figures(kept: Callable[..., Stored]) -> None:
    claim = a_claim()
    kept(claim, {"delta": [0.9, 0.91, 0.92]})
    stored = kept(claim, {"sum": [0.1, 0.1, 0.5]}, marks=["undertrained"])
    (drawing,) = drawings(verdict(claim, stored))
    assert drawing.slug == f"{claim.id}-cpu"
    text = next(iter(drawing.pictures(["svg"]).values())).decode()
    assert all(words in text for words in ("supported: ", "refuted: ", "delta", "sum", "0.910 ± 0.010"))
    other = kept(claim, {"sum": [0.1, 0.1, 0.4]})
    assert drawings(verdict(claim, other))[0].fingerprint != drawing.fingerprint
    assert drawings(verdict(claim, Stored([]))) == []

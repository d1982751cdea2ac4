"""Results that several tests of tables need."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest


@pytest.fixture
def climb(a_result: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Results of the rungs of a ladder: of these accuracies, the last as the ladder ended if it did."""

    def make(
        label: str, seed: int, accuracies: Sequence[float], ended: str | None = None, **more: Any
    ) -> Any:
        found = []
        for doublings, accuracy in enumerate(accuracies):
            tokens = 1000 << doublings
            curve = [{"step": 1, "tokens": tokens, "loss": 1.0, "accuracy": accuracy, "nll": 1.0}]
            one = a_result(label, seed, accuracy, purpose="rung", curve=curve, **more)
            settings = one["cell"]["protocol"]["settings"] | ({"doublings": doublings} if doublings else {})
            one["cell"] = one["cell"] | {"protocol": {"version": 1, "settings": settings}}
            found.append(one | {"id": f"{label} {seed} {doublings} {more}"})
        if ended:
            rungs = [{"tokens": 1000 << n, "accuracy": score} for n, score in enumerate(accuracies)]
            ladder = {"ended": ended, "most": 6, "rungs": rungs}
            found[-1] |= {"purpose": "report", "ladder": ladder}
        return found

    return make

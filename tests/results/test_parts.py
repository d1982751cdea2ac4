"""Effects of the steps from linear attention to KDA, and their interactions."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from linbench.results.parts import SETTINGS, STEPS, Parts, effects

LEVELS = {
    name: list(dict.fromkeys(v for s in STEPS if s.setting == name for v in (s.before, s.after)))
    for name in SETTINGS
}
EVERY = [parts for parts in product(*LEVELS.values()) if parts[-2] or not parts[-1]]
"""All combinations but negative eigenvalues of what erases nothing."""


def value(parts: Parts, own: dict[str, float], together: dict[tuple[str, str], float]) -> float:
    """The score of a combination: the sum of what its steps and pairs of steps add."""
    taken = {
        step.name
        for step in STEPS
        for levels in [LEVELS[step.setting]]
        if levels.index(parts[SETTINGS.index(step.setting)]) >= levels.index(step.after)
    }
    return sum(own[name] for name in taken) + sum(v for pair, v in together.items() if taken.issuperset(pair))


OWN = {step.name: 0.01 * place for place, step in enumerate(STEPS)}


def test_there_are_as_many_combinations_as_rules_of_three_decays_and_three_writes() -> None:
    assert len(EVERY) == 2 * 2 * 2 * 3 * 3


def test_effects_of_steps_that_only_add_are_what_they_add() -> None:
    found = effects({parts: [value(parts, OWN, {})] * 2 for parts in EVERY})
    alone = {effect.name: effect for effect in found if len(effect.steps) == 1}
    assert {name: effect.mean for name, effect in alone.items()} == pytest.approx(OWN)
    assert [effect.contrasts for effect in alone.values()] == [36, 36, 36, 24, 24, 24, 24]
    pairs = [effect for effect in found if len(effect.steps) == 2]
    assert len(pairs) == 21 - 2, "but two pairs"
    assert [effect.mean for effect in pairs] == pytest.approx([0] * len(pairs))
    assert all((effect.low, effect.high) == (effect.mean, effect.mean) for effect in found)


def test_an_interaction_is_what_two_steps_add_together() -> None:
    convolution, gate, rule = "short convolution", "output gate", "delta rule"
    pair = (convolution, rule)
    found = effects({parts: [value(parts, OWN, {pair: 0.3})] * 2 for parts in EVERY})
    means = {tuple(step.name for step in effect.steps): effect.mean for effect in found}
    assert means[pair] == pytest.approx(0.3)
    assert means[convolution,] == pytest.approx(OWN[convolution] + 0.3 * 2 / 3)
    assert means[rule,] == pytest.approx(OWN[rule] + 0.3 / 2)
    assert means[gate, rule] == pytest.approx(0)


def test_intervals_hold_together_as_often_as_they_say() -> None:
    """Seeds of some combinations vary ten times as much as those of others."""
    draw, truth = np.random.default_rng(0), {p: value(p, OWN, {}) for p in EVERY}
    noise = {parts: 0.1 if parts[0] else 0.01 for parts in EVERY}
    held, alone = 0, []
    for _ in range(200):
        found = effects({p: draw.normal(truth[p], noise[p], size=3).tolist() for p in EVERY})
        inside = [e.low <= (OWN[e.name] if len(e.steps) == 1 else 0) <= e.high for e in found]
        held += all(inside)
        alone += inside
    assert held >= 180  # 190 are expected, or more as effects hang together
    assert np.mean(alone) < 1, "no interval is without end"


def test_what_is_missing_is_left_out_of_the_mean() -> None:
    scores: dict[Parts, Any] = {parts: [value(parts, OWN, {})] * 2 for parts in EVERY}
    del scores[EVERY[0]]
    scores[EVERY[-1]] = [0.5]
    means = {effect.name: effect for effect in effects(scores)}
    assert means["short convolution"].contrasts == 34
    assert {name: means[name].mean for name in OWN} == pytest.approx(OWN)
    assert effects({}) == []

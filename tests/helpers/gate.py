"""Runs that are gated, as made up."""

from collections.abc import Sequence
from typing import Any

from linbench.results.gate import Gate, gate
from linbench.results.gate_policy import Policy

SEEDS = range(6)
NOISE = (0.0, 0.02, -0.02, 0.01, -0.01, 0.0)


def gated(baseline: Sequence[Any], candidate: Sequence[Any], **policy: Any) -> Gate:
    return gate(baseline, candidate, Policy.parse(policy, where="policy"))


def sentences(*words: Any, **policy: Any) -> tuple[int, tuple[str, ...]]:
    found = gated(*words, **policy)
    return found.exit_code, found.problems

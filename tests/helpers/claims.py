"""Claims and stored results for tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linbench.claims.cells import CellSource
from linbench.claims.claim import Claim, read_section
from linbench.claims.looks import LOOKS
from linbench.claims.seed_evidence import SeedEvidence
from linbench.claims.stored_results import Stored
from linbench.claims.tally import Tally
from linbench.claims.verdict import UNDECIDED, decide
from linbench.common.hashing import digest
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.records import a_point, a_record

CLAIM: dict[str, Any] = {
    "says": "the delta rule recalls more",
    "source": "x",
    "published": "y",
    "tier": "T1",
    "setting": "z",
    "rule": "w",
    "measures": {"delta": "deltanet", "sum": "linear_attention"},
    "supported": "delta - sum >= 0.2",
    "refuted": "delta <= sum",
}


def a_claim(cells: dict[str, Any] | None = None, **changes: Any) -> Claim:
    """Return `CLAIM` on small cells, each with some fields changed."""
    small = {"tasks": ["mqar"], "set": {"model.d_model": 16}} | (cells or {})
    (claim,) = read_section(
        {"title": "t", "cells": {"recall": small}, "claims": {"C1": CLAIM | changes}}, where="a.yaml"
    )
    return claim


def cells_of(claim: Claim, name: str, *, seeds: int = LOOKS[0]) -> list[Cell]:
    """Return the cells of a measure of a claim."""
    measure = claim.measures[name]
    assert isinstance(measure.source, CellSource)
    return measure.source.cells(measure, seeds=seeds)


def alike(score: float, seeds: int = LOOKS[0]) -> list[float]:
    """Return the same score for so many seeds."""
    return [score] * seeds


def a_result(cell: Cell, score: float, device: str, **more: Any) -> Result:
    """Return a stored result of a cell, as far as claims read it."""
    identity = {**cell.identity, "device": device}
    own = {
        "label": cell.model.label,
        "purpose": cell.purpose,
        "cell": identity,
        "metrics": {"accuracy": score, "nll": 1.0},
        "curve": [a_point(score)],
    }
    return a_record(digest(identity), **own) | more


def keeping(folder: Path) -> Callable[..., Stored]:
    """Return a function that stores scores of measures, seed by seed, in a folder."""

    def keep(claim: Claim, scores: dict[str, Sequence[float]], device: str = "cpu", **more: Any) -> Stored:
        store = Store(folder)
        store.prepare()
        for name, values in scores.items():
            for cell, score in zip(cells_of(claim, name, seeds=LOOKS[-1]), values, strict=False):
                store.put(a_result(cell, score, device, **more))
        return Stored([store])

    return keep


def decided_by_looks(claim: Claim, scores: Mapping[str, Sequence[float]]) -> str:
    """Return the outcome of a claim if seeds are added until it is decided.

    Args:
        scores: for every measure that decides the scores of all seeds, as many as the last look asks for.
    """
    for size in LOOKS:
        evidence = {name: SeedEvidence(dict(enumerate(own[:size]))) for name, own in scores.items()}
        outcome, _ = decide(claim, Tally(evidence))
        if outcome != UNDECIDED:
            return outcome
    return UNDECIDED

"""Findings of made-up results, for tests of the site."""

from collections.abc import Callable, Sequence
from pathlib import Path

from linbench.claims.claim import claims
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from linbench.reproduction.ran import most, ran
from linbench.reproduction.stored import Stored as StoredCells
from linbench.reproduction.table import reproductions
from linbench.results.record import add_result, no_results
from linbench.results.schema import Result
from linbench.site.findings import Findings
from tests.helpers.speeds import a_speed

Make = Callable[..., Result]

FEW_CLAIMS, FEW_TABLES = ("C9", "C17", "C39"), ("R9",)
"""Claims that wait, or rest on trained models alone, and a table: the others take many seconds."""

TEST = {"settings": {}, "seq_len": 64, "chance": 0.1, "slices": {}}

SCORES = {"deltanet": 0.9, "gla": 0.7, "retnet": 0.4, "attention": 0.95}
"""Variants of which results are made up, with the accuracy of their first seed."""


def findings_of(results: Sequence[Result]) -> Findings:
    """Return what results of trained models and of speeds say, of a few claims and of one table alone."""
    kinds = no_results()
    for result in results:
        add_result(kinds, result)
    stored = Stored([])
    stored.by_folder = {Path("made-up"): kinds}
    stored.results = {result["id"]: result for result in kinds["cell"]}
    stored.speeds = {result["id"]: result for result in kinds["speed"]}
    findings = Findings(stored)
    vars(findings)["verdicts"] = [verdict(claims()[name], stored) for name in FEW_CLAIMS]
    read = StoredCells([])
    vars(findings)["tables"] = [most(ran(reproductions()[name], read, "cpu")) for name in FEW_TABLES]
    return findings


def trained(make: Make, label: str, seed: int, score: float, task: str, **more: object) -> Result:
    """Return a result of the controlled form, with a learning curve."""
    curve = [
        {"step": i, "tokens": 100 * i, "accuracy": score * i / 4, "loss": 1.0, "nll": 1.0}
        for i in range(1, 5)
    ]
    result = make(label, seed, score, form="controlled", curve=curve, **more)
    result["cell"]["task"]["name"] = task
    if "tests" in more:
        result["cell"]["task"]["test"] = [{"settings": {"noise": noise}} for noise in (1, 2)]
    return result | {"id": f"{label} {seed} {task} {score} {more}"}


def made_up(make: Make) -> list[Result]:
    """Return results of a few variants: what they recall, overwrite, track and learn, and their speeds."""
    found: list[Result] = []
    for place, (label, score) in enumerate(SCORES.items()):
        for seed in range(3):
            now = round(score - 0.05 * seed, 2)
            tests = [{**TEST, "metrics": {"accuracy": now}}] * 2
            old = {"sum": [0, 10 * (1 - now)], "weight": [10, 10]}
            slices = {"overwrites": {"at": [0, 4], "accuracy": old, "stale": old}}
            found += [
                trained(make, label, seed, now, "mqar", recurrent=100 * (place + 1)),
                trained(make, label, seed, now, "variable_overwrite", slices=slices),
                trained(make, label, seed, now, "noise_recall", tests=tests),
                trained(make, label, seed, now, "counter"),
                trained(make, label, seed, now, "regression"),
            ]
        layer = {"form": "controlled", "settings": {"heads": 2, "conv": 4}}
        found.append(
            a_speed(label, seconds=0.01 * (place + 1), bench={}, settings={}) | {"id": f"speed {label}"}
        )
        found[-1]["bench"]["layer"] |= layer
    return found

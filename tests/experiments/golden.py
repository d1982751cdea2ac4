"""Identities of the cells of every shipped suite, as one hash for each suite.

`python -m tests.experiments.golden > tests/golden/suites.json` writes them anew, after a change that means to
change them.
"""

import hashlib
import json
from functools import cache

from linbench.experiments.suite import expand, load


@cache
def planned(suite: str) -> tuple[list[str], set[str]]:
    """Return the ids of a suite's cells on a CPU, and what of it is missing; kept, as plans are slow."""
    found = expand(load(suite), device="cpu")
    return [cell.id for cell in found.cells], {*found.missing}


def identities(suite: str) -> dict[str, object]:
    """Return how many cells a suite has, and the SHA-256 of their ids in order."""
    ids, _ = planned(suite)
    return {"cells": len(ids), "ids": hashlib.sha256("\n".join(ids).encode()).hexdigest()}


if __name__ == "__main__":
    from linbench.experiments.suite import shipped

    print(json.dumps({name: identities(name) for name in shipped()}, indent=1))

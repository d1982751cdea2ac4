"""Identities of the cells of every shipped suite, as one hash for each suite.

`python -m tests.experiments.golden > tests/golden/suites.json` writes them anew, after a change that means to
change them.
"""

import hashlib
import json

from linbench.experiments.suite import expand, load


def identities(suite: str) -> dict[str, object]:
    """Return how many cells a suite has on a CPU, and the SHA-256 of their ids in order."""
    ids = [cell.id for cell in expand(load(suite), device="cpu").cells]
    return {"cells": len(ids), "ids": hashlib.sha256("\n".join(ids).encode()).hexdigest()}


if __name__ == "__main__":
    from linbench.experiments.suite import shipped

    print(json.dumps({name: identities(name) for name in shipped()}, indent=1))

"""Constraints for pip, one a line: the lowest versions that pyproject.toml allows, or none for the newest.

torch and triton stay as constraints.txt has them: the lowest torch comes with gigabytes of CUDA libraries,
which a run of `.ci/run` has no time for.
"""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINNED = ("torch", "triton")


def lowest(requirement: Requirement) -> str:
    """Return the constraint to the lowest version that a requirement allows.

    Raises ValueError: it has no lower bound.
    """
    bounds = [bound.version for bound in requirement.specifier if bound.operator in (">=", "==", "~=")]
    if not bounds:
        raise ValueError(f"{requirement} in pyproject.toml has no lower bound")
    return f"{requirement.name}=={bounds[0]}"


def constraints(end: str) -> list[str]:
    """Return the constraints for an end, `lowest` or `highest`.

    Raises ValueError: another end, or a dependency without a lower bound.
    """
    if end not in ("lowest", "highest"):
        raise ValueError(f"bounds are lowest or highest, not {end}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line.partition("==")[0] in PINNED
    ]
    bounded = [lowest(one) for one in map(Requirement, project["dependencies"]) if one.name not in PINNED]
    return [*(bounded if end == "lowest" else []), *pins]


if __name__ == "__main__":
    print("\n".join(constraints(sys.argv[1])))

"""Constraints for pip: the lowest versions that pyproject.toml allows, but for torch and triton, which stay as constraints.txt has them.

The lowest torch comes with gigabytes of CUDA libraries, which a run of `.ci/run` has no time for.
"""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINNED = ("torch", "triton")


def lowest(requirement: Requirement) -> str:
    """Return the constraint to the lowest version that a requirement allows. Raises ValueError: it has no lower bound."""
    bounds = [bound.version for bound in requirement.specifier if bound.operator in (">=", "==", "~=")]
    if not bounds:
        raise ValueError(f"{requirement} in pyproject.toml has no lower bound")
    return f"{requirement.name}=={bounds[0]}"


def main() -> None:
    """Print one constraint a line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line.partition("==")[0] in PINNED]
    found = [lowest(one) for one in map(Requirement, project["dependencies"]) if one.name not in PINNED]
    print("\n".join([*found, *pins]))


if __name__ == "__main__":
    main()

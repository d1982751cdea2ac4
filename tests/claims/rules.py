"""The hashes of the rules of claims; `python -m tests.claims.rules` takes up declared changes."""

import json
from pathlib import Path

from linbench.claims.claim import Claim, claims

PATH = Path(__file__).parents[1] / "golden" / "rules.json"
"""The hash of each claim's rules and settings, with the number of its deviations."""

Stored = dict[str, dict[str, object]]


def stored() -> Stored:
    """Return what is kept, by the ids of claims."""
    loaded: Stored = json.loads(PATH.read_text(encoding="utf-8"))
    return loaded


def current(claim: Claim) -> dict[str, object]:
    """Return the hash and the number of deviations of a claim."""
    return {"hash": claim.fingerprint, "deviations": len(claim.text.deviations)}


def undeclared(before: Stored) -> list[str]:
    """Return the claims whose rules or settings changed without another deviation, or the other way round."""
    return [
        name
        for name, claim in claims().items()
        if (kept := before.get(name))
        and (kept["hash"] != claim.fingerprint) != (kept["deviations"] != len(claim.text.deviations))
    ]


def main() -> None:
    """Keep the present hashes, unless a change was not declared."""
    if PATH.exists() and (names := undeclared(stored())):
        raise SystemExit(f"{', '.join(names)}: a change of rules or settings needs an entry in `deviations`.")
    with_rules = {name: current(claim) for name, claim in claims().items() if claim.rules}
    PATH.write_text(json.dumps(with_rules, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

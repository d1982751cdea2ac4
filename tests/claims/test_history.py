"""Rules of claims have a date, a hash, and a list of what was changed since."""

import datetime

import pytest

from linbench.claims.claim import Claim, claims
from linbench.claims.page import about, to_json
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from tests.claims import rules
from tests.helpers.claims import a_claim

WITH_RULES = [claim for claim in claims().values() if claim.rules]
CHANGE = {"dated": "2026-11-27", "what": "A margin in numbers.", "seen": "Nothing."}


def test_no_rule_changed_without_an_entry() -> None:
    """After an entry in `deviations`, `python -m tests.claims.rules` keeps the new hash."""
    assert rules.stored() == {claim.id: rules.current(claim) for claim in WITH_RULES}


@pytest.mark.parametrize("claim", WITH_RULES, ids=lambda claim: claim.id)
def test_every_rule_is_dated_and_its_changes_are_in_order(claim: Claim) -> None:
    assert claim.text.dated
    dates = [claim.text.dated, *(each.dated for each in claim.text.deviations)]
    assert dates == sorted(dates)
    assert all(each.what.endswith(".") and each.seen.endswith(".") for each in claim.text.deviations)


@pytest.mark.parametrize(
    "changes",
    [
        {"supported": "delta - sum >= 0.3"},
        {"premise": "delta > 0.5"},
        {"measure": {"of": "scaled"}},
        {"measures": {"delta": "kda", "sum": "linear_attention"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_hash_knows_all_that_decides(changes: dict[str, object]) -> None:
    assert a_claim(**changes).fingerprint != a_claim().fingerprint


def test_the_hash_knows_the_cells_and_nothing_but_what_decides() -> None:
    claim = a_claim()
    assert a_claim({"set": {"model.d_model": 32}}).fingerprint != claim.fingerprint
    unused = {"delta": "deltanet", "sum": "linear_attention", "shown": "gla"}
    assert a_claim(measures=unused, says="another sentence").fingerprint == claim.fingerprint
    spaced = a_claim(supported="delta -  sum >=  0.2")
    assert spaced.fingerprint == claim.fingerprint


def test_a_change_is_declared_by_an_entry_and_an_entry_by_a_change() -> None:
    kept = rules.stored()
    assert rules.undeclared(kept) == []
    claim = WITH_RULES[0]
    entries = len(claim.text.deviations)
    assert rules.undeclared({claim.id: {"hash": "other", "deviations": entries}}) == [claim.id]
    assert rules.undeclared({claim.id: {"hash": claim.fingerprint, "deviations": entries + 1}}) == [claim.id]
    assert rules.undeclared({claim.id: {"hash": "other", "deviations": entries + 1}}) == []


def test_a_claim_shows_its_history() -> None:
    claim = a_claim(dated=datetime.date(2026, 11, 22), seen="nothing", deviations=[CHANGE])
    told = about(claim)
    assert claim.fingerprint in told["Dated"]
    assert told["Dated"].startswith("2026-11-22")
    assert told["Deviation 1"].startswith(CHANGE["dated"])
    shown = to_json(verdict(claim, Stored([])))
    assert (shown["dated"], shown["deviations"], shown["hash"]) == ("2026-11-22", [CHANGE], claim.fingerprint)

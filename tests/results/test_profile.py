"""Profiles: one number for each variant and question, from the best evidence that there is."""

from collections.abc import Callable
from typing import Any

import pytest

from linbench.report.data import ReportData
from linbench.report.tables.profile import profile_tables
from linbench.results.capacity import Ranks
from linbench.results.comparison import comparisons
from linbench.results.profile import Estimate, Facet, accuracy_facet, facets
from linbench.results.schema import Result
from tests.helpers.capacity import recall_result

Make = Callable[..., Result]


@pytest.fixture
def controlled(a_result: Make) -> Make:
    def make(*words: Any, task: str = "mqar", **more: Any) -> Result:
        result = a_result(*words, **more)
        result["cell"]["model"]["form"] = "controlled"
        result["cell"]["task"]["name"] = task
        return result

    return make


def stale(make: Make, label: str, seed: int, share: float) -> Result:
    """Return a result in which a share of ten answers is old, after four overwrites."""
    one = {"sum": [1, 5], "weight": [10, 10]}
    old = {"sum": [0, 10 * share], "weight": [10, 10]}
    slices = {"overwrites": {"at": [0, 4], "accuracy": one, "stale": old}}
    return make(label, seed, task="variable_overwrite", slices=slices)


def parity(make: Make, label: str, seed: int, *accuracies: float) -> Result:
    lengths = (32, 64, 128)
    tests = [
        {"settings": {"seq_len": n}, "seq_len": n, "chance": 0.5, "metrics": {"accuracy": y}, "slices": {}}
        for n, y in zip(lengths, accuracies, strict=True)
    ]
    result = make(label, seed, task="parity", tests=tests)
    result["cell"]["task"]["test"] = [{"settings": {"seq_len": n}} for n in lengths]
    return result


def found(results: list[Result]) -> dict[str, Facet]:
    return {facet.key: facet for facet in facets(comparisons(results), ())}


def test_ranks_are_those_that_intervals_leave_open() -> None:
    estimates = {"a": Estimate(3, 2, 4), "b": Estimate(2.5, 1, 3), "c": Estimate(0.5), "d": Estimate(5)}
    facet = Facet("capacity", None, "", estimates, more_is_better=True)
    assert [facet.ranks(label) for label in "dabc"] == [Ranks(1, 1), Ranks(2, 3), Ranks(2, 3), Ranks(4, 4)]
    assert facet.ranks("unknown") is None
    worse = facet._replace(more_is_better=False)
    assert [worse.ranks(label) for label in "cbad"] == [Ranks(1, 1), Ranks(2, 3), Ranks(2, 3), Ranks(4, 4)]


def test_old_values_are_those_after_the_most_overwrites(controlled: Make) -> None:
    results = [stale(controlled, "deltanet", seed, share) for seed, share in enumerate((0.1, 0.2, 0.3))]
    (estimate,) = found(results)["stale"].estimates.values()
    assert estimate.value == pytest.approx(0.2)
    assert estimate.low == 0.0
    assert estimate.high == pytest.approx(0.2 + 4.303 * 0.1 / 3**0.5, rel=1e-3)


def test_a_length_is_tracked_if_all_shorter_ones_are(controlled: Make) -> None:
    curves = [(1.0, 1.0, 0.5), (1.0, 0.94, 1.0), (0.5, 1.0, 1.0)]
    results = [parity(controlled, "deltanet", seed, *curve) for seed, curve in enumerate(curves)]
    (estimate,) = found(results)["parity"].estimates.values()
    assert estimate == Estimate(32, 0, 64), "0.94 is less than nine tenths above chance"


def test_native_results_make_no_facet(a_result: Make) -> None:
    assert found([recall_result(a_result, "deltanet", {16: 1.0, 64: 0.2})]) == {}


def test_what_holds_fewer_pairs_than_the_fewest_is_shown_below_them(controlled: Make) -> None:
    results = [
        *(recall_result(controlled, "a", {16: 1.0, 64: 0.2}, seed) for seed in range(5)),
        *(recall_result(controlled, "b", {16: 0.4, 64: 0.2}, seed) for seed in range(5)),
        *(stale(controlled, label, seed, 0.1) for label in "ab" for seed in range(3)),
        *(parity(controlled, label, seed, 1, 1, 1) for label in "ab" for seed in range(3)),
    ]
    (table,) = profile_tables(ReportData(results))
    first, second = table.texts
    assert (first[0], second[0]) == ("a", "b")
    assert second[1].startswith("<")
    assert first[2:] == ["0.100 (1 to 2)", "128 (1 to 2)"]
    assert [record["capacity"] is not None for record in table.to_records()] == [True, True]


def test_two_facets_are_no_profile(controlled: Make) -> None:
    results = [stale(controlled, "deltanet", 0, 0.1), parity(controlled, "deltanet", 0, 1, 1, 1)]
    assert profile_tables(ReportData(results)) == []


def test_what_has_one_test_alone_tells_nothing_of_the_hardest(controlled: Make) -> None:
    results = [
        controlled("deltanet", seed, task=task) for seed in range(2) for task in ("noise_recall", "parity")
    ]
    assert found(results) == {}


def test_a_task_without_a_quantity_of_its_own_has_accuracy(controlled: Make, a_result: Make) -> None:
    results = [controlled("deltanet", seed, 0.5 + seed / 10, task="counter") for seed in range(3)]
    facet = accuracy_facet(comparisons([*results, a_result("gla")]), "counter")
    assert facet
    assert {label: one.value for label, one in facet.estimates.items()} == {"deltanet": pytest.approx(0.6)}
    assert accuracy_facet(comparisons(results), "mqar") is None

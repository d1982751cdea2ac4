import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.common.hashing import canonical
from linbench.experiments.suite import expand
from linbench.experiments.suite import load as load_suite
from linbench.report.tables.gate import sentences as in_words
from linbench.results.gate import Gate, gate
from linbench.results.gate_policy import Policy, load
from linbench.results.gate_times import LaterRow, LearningPair
from linbench.results.judgement import SeedPair, judge
from linbench.results.matching import code_free_identity
from linbench.results.power import visible_fall
from linbench.results.statistics import false_discovery
from linbench.results.store import Store
from tests.helpers.gate import NOISE, SEEDS, gated, sentences
from tests.helpers.learning import on_grid
from tests.results.pairs import TWIN
from tests.results.pairs import pairs as measured_pairs

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "ci"


@pytest.fixture
def runs(a_result: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Six seeds of a model about a score."""
    return lambda label="deltanet", score=0.8, seeds=SEEDS, **more: [
        a_result(label, seed, score + NOISE[seed % 6], **more) for seed in seeds
    ]


def draws(cells: int, fallen: int, rounds: int, *, drop: float = 0.03) -> Iterator[list[SeedPair]]:
    """Yield pairs of six seeds that lie ten points apart, while both runs of a seed lie .8 points apart.

    The first `fallen` cells are lower by `drop` in the candidate.
    """
    noise = random.Random(20)
    for _ in range(rounds):
        pairs = []
        for i in range(cells):
            seeds = [noise.gauss(0.8, 0.1) for _ in SEEDS]
            fall = drop if i < fallen else 0.0
            pairs.append(SeedPair(str(i), seeds, [seed - fall + noise.gauss(0, 0.008) for seed in seeds]))
        yield pairs


COUNTS = pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.nightly)])


@pytest.mark.slow
@COUNTS
def test_what_did_not_change_is_rarely_red(count: int) -> None:
    """Without a fall that passes whatever its p, so that the test alone decides."""
    alarms = sum(any(one.red for one in judge(pairs, Policy(drop=0))) for pairs in draws(6, 0, count))
    assert 0 < alarms <= 0.01 * count, "a gate that is never wrong would be one that is never red"
    assert not any(one.red for pairs in draws(6, 0, count) for one in judge(pairs, Policy()))


@pytest.mark.slow
@COUNTS
def test_a_drop_of_three_points_is_nearly_always_seen_among_six_cells(count: int) -> None:
    found = [judge(pairs, Policy()) for pairs in draws(6, 1, count)]
    assert sum(one[0].red for one in found) >= 0.95 * count
    assert sum(any(other.red for other in one[1:]) for one in found) <= 0.01 * count


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0005, 0.01, 0.03])
@pytest.mark.parametrize("seeds", [3, 6, 12])
def test_a_fall_that_would_show_is_red_in_95_of_100_runs(spread: float, seeds: int) -> None:
    """The noise is known here; in a table it is that of a few seeds."""
    noise, policy, cells = random.Random(5), Policy(seeds=seeds), 4
    fall = visible_fall(spread**2, seeds=seeds, drop=policy.drop, alpha=policy.alpha / cells)
    flat = [0.8] * seeds
    red = sum(
        judge(
            [SeedPair("cell", flat, [noise.gauss(0.8 - fall, spread) for _ in flat])]
            + [SeedPair("other", flat, flat)] * (cells - 1),
            policy,
        )[0].red
        for _ in range(600)
    )
    assert 0.92 <= red / 600 <= 0.98


def test_of_a_bimodal_cell_it_says_how_many_may_learn() -> None:
    learned = [0.9] * 6
    pair = SeedPair("parity", learned, learned, 0.8)
    assert [judge([pair] * cells, Policy())[0].visible for cells in (1, 8, 100)] == [1, 0, None]
    for after, red in ((1, True), (2, False)):
        (own,) = judge([SeedPair("parity", learned, learned[:after] + [0.1] * (6 - after), 0.8)], Policy())
        assert own.red == red


def test_what_cannot_fall_so_far_shows_nothing() -> None:
    wide = [0.5, 0.9, 0.6, 0.8, 0.55, 0.85]
    (one,) = judge([SeedPair("cell", wide, wide[::-1], chance=0.5)], Policy())
    assert one.visible is None


def test_twins_of_the_baseline_tell_its_noise_and_are_not_gated(runs: Callable[..., Any]) -> None:
    """Without them the worst case counts: runs of one seed that have nothing in common."""
    twins = runs(score=0.801)
    for one in twins:
        one["cell"]["protocol"]["settings"]["jitter"] = 1e-6
        one["metrics"]["accuracy"] += 0.001 * (one["cell"]["seed"] % 2)
    base = runs()
    for baseline, source in ((base, "worst case"), (base + twins, "twins")):
        (row,) = gate(baseline, None, Policy()).rows
        assert row.pair.noise.source == source
        (row,) = gated(baseline, runs(score=0.79) + twins).rows
        assert row.pair.noise.source == ("twins" if source == "twins" else "measured")
    apart = runs(score=0.79)
    for one in apart:
        one["metrics"]["accuracy"] += 0.05 * (-1) ** one["cell"]["seed"]
    (row,) = gated(base + twins, apart).rows
    assert row.pair.noise.source == "measured"
    (alone,), (known,) = gate(base, None, Policy()).rows, gate(base + twins, None, Policy()).rows
    assert known.pair.noise.spread == pytest.approx(0.001**2 * 0.3)
    assert alone.pair.noise.spread == pytest.approx(2 * sum(n**2 for n in NOISE) / 5)
    assert Policy().drop < (known.visible or 0) < (alone.visible or 0)


def test_what_both_runs_of_a_seed_have_in_common_is_no_noise(runs: Callable[..., Any]) -> None:
    """Seeds come in any order, and lie far apart."""
    after = runs(score=0.775)
    for place, one in enumerate(after):
        one["metrics"]["accuracy"] += 0.002 * (-1) ** place
    (row,) = gated(runs(), after[::-1]).rows
    assert row.red
    assert row.difference.mean == pytest.approx(-0.025)


def test_false_discoveries_are_adjusted_as_published() -> None:
    """The example of Benjamini and Hochberg: of fifteen values four are below their bounds at .05."""
    ps = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    shuffled = ps[::2] + ps[1::2]
    found = false_discovery(shuffled)
    assert sorted(shuffled[place] for place, p in enumerate(found) if p <= 0.05) == ps[:4]
    assert found[shuffled.index(0.0095)] == pytest.approx(0.0095 * 15 / 4)
    assert found[shuffled.index(0.3240)] == pytest.approx(0.3240 * 15 / 10)


def test_the_policy_says_how_many_cells_are_corrected() -> None:
    pairs = [SeedPair("cell", [0.8] * 6, [0.73 + n for n in NOISE])] * 8
    strict, mild = (judge(pairs, Policy(correction=each)) for each in ("holm", "fdr"))
    assert strict[0].adjusted_p > mild[0].adjusted_p == pytest.approx(strict[0].p)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_seeds_that_learn_as_often_as_they_did_are_rarely_red(share: float) -> None:
    """All outcomes of six and six seeds, each with its probability."""
    chances = [comb(6, n) * share**n * (1 - share) ** (6 - n) for n in range(7)]
    learn = [[0.95] * n + [0.1] * (6 - n) for n in range(7)]
    alarm = sum(
        chances[before] * chances[after]
        for before, after in product(range(7), repeat=2)
        if judge([SeedPair("parity", learn[before], learn[after], 0.9)], Policy())[0].red
    )
    assert 0 < alarm <= 0.01


def test_a_cell_that_no_seed_learns_any_more_is_red_among_eight() -> None:
    well = SeedPair("mqar", [0.9] * 6, [0.9] * 6)
    found = judge([SeedPair("parity", [0.95] * 6, [0.5] * 6, 0.9), *[well] * 7], Policy())
    assert [one.red for one in found] == [True] + [False] * 7
    assert found[0].p == pytest.approx(1 / comb(12, 6))
    assert found[0].adjusted_p == pytest.approx(8 / comb(12, 6))


def test_the_same_results_are_let_pass(runs: Callable[..., Any]) -> None:
    found = gated(runs(), runs())
    assert (found.exit_code, found.problems, found.new) == (0, (), ())
    (one,) = found.rows
    assert (one.pair.name, one.difference.mean, one.adjusted_p) == ("mqar quick native, deltanet", 0.0, 1.0)


def test_a_drop_is_red_and_a_rise_is_not(runs: Callable[..., Any]) -> None:
    assert gated(runs(), runs(score=0.7)).exit_code == 4
    assert gated(runs(), runs(score=0.9)).exit_code == 0


def test_a_drop_within_two_points_is_never_red_and_one_without_spread_always(
    a_result: Callable[..., Any],
) -> None:
    def flat(score: float) -> list[Any]:
        return [a_result(seed=seed, score=score) for seed in SEEDS]

    assert gated(flat(0.8), flat(0.781)).exit_code == 0
    assert gated(flat(0.8), flat(0.779)).exit_code == 4
    assert gated(flat(0.8), flat(0.779), drop=0.03).exit_code == 0
    assert gated(flat(0.8), flat(0.8)).exit_code == 0
    assert gated(flat(0.9), flat(0.88)).exit_code == 0, (
        "two points are not more than two, whatever floats make of them"
    )
    assert not gated(flat(0.9), flat(0.88)).rows[0].dropped


def test_all_cells_are_counted_together(runs: Callable[..., Any]) -> None:
    """A drop that alone is shown is not among many."""
    others = [result for i in range(30) for result in runs(f"other{i}")]
    lower = runs(score=0.775)
    for place, one in enumerate(lower):
        one["metrics"]["accuracy"] += 0.015 * (-1) ** place
    assert gated(runs(), lower).exit_code == 4
    assert gated(runs() + others, lower + others).exit_code == 0


def test_diverged_runs_count_as_chance_and_marks_excuse_nothing(
    runs: Callable[..., Any], a_result: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    diverged = [a_result(seed=seed, status="diverged", metrics={}) for seed in SEEDS]
    found = gated(runs(), diverged)
    assert found.exit_code == 4
    assert found.rows[0].pair.candidate == [0.125] * 6
    worse = gated(runs(score=0.09), diverged)
    assert worse.exit_code == 4, "chance is no fall from below it, but that all diverge is one"
    assert in_words(worse) == snapshot
    assert gated(diverged, diverged).exit_code == 5, "nothing can get worse where nothing was learnt"
    once = [*runs(score=0.09, seeds=list(SEEDS)[1:]), diverged[0]]
    assert [(one.red, one.diverges) for one in gated(runs(score=0.09), once).rows] == [(False, True)], (
        "one of six may be luck"
    )
    slower = gated(runs(), runs(score=0.6, marks=["lr_edge"]))
    assert slower.exit_code == 4
    assert slower.rows[0].marks == ("candidate: lr_edge 6/6",)


def test_what_is_missing_is_named(
    runs: Callable[..., Any], a_result: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert sentences(runs() + runs("kda"), runs()) == snapshot(name="a cell")
    assert sentences(runs(), runs(seeds=range(4))) == snapshot(name="two seeds")
    assert sentences(runs(seeds=range(7)), runs()) == snapshot(name="one seed too many")
    assert sentences(runs(), runs(seeds=range(7))) == (0, ())
    failed = [
        *runs(seeds=range(5)),
        a_result(seed=5, status="failed", metrics={}, reason="mine.py line 3: RuntimeError: no."),
    ]
    assert sentences(runs(), failed) == snapshot(name="failed in the candidate")
    assert sentences(failed, runs(), seeds=5) == snapshot(name="failed in the baseline")
    assert sentences(runs(seeds=[0]), runs(seeds=[0])) == snapshot(name="one seed each")
    assert sentences(runs(seeds=range(3)), runs(seeds=range(3)), seeds=3) == (0, ())
    assert sentences([], runs()) == snapshot(name="the baseline")


def test_a_seed_that_is_there_twice_is_named(runs: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    newer = runs()
    for result in newer:
        result["cell"]["model"]["layers"][0]["version"] = 2
    code, problems = sentences(runs(), runs() + newer[:1])
    assert code == 5
    assert problems[0] == snapshot


def test_a_regression_outweighs_what_is_missing(runs: Callable[..., Any]) -> None:
    found = gated(runs() + runs("kda"), runs(score=0.5))
    assert (found.exit_code, len(found.red), len(found.problems)) == (4, 1, 1)


def test_what_the_candidate_has_beyond_the_baseline_is_told_and_not_gated(runs: Callable[..., Any]) -> None:
    found = gated(runs(), runs() + runs("kda", 0.2))
    assert (found.exit_code, found.new) == (0, ("mqar quick native, kda",))


def test_runs_that_chose_a_rate_are_not_gated(runs: Callable[..., Any]) -> None:
    assert gated(runs() + runs("kda", purpose="tuning"), runs()).exit_code == 0


BIMODAL = {"task": "mqar", "model": "deltanet", "learnt": 0.75}


def test_seeds_that_learn_are_counted_where_the_policy_says_so(
    runs: Callable[..., Any], a_result: Callable[..., Any]
) -> None:
    """The mean of what learns may fall, as long as it is learnt."""
    lower = runs(score=0.77)
    assert gated(runs(), lower).exit_code == 4
    found = gated(runs(), lower, bimodal=[BIMODAL])
    assert (found.exit_code, found.rows[0].pair.learned_counts) == (0, (6, 6))
    few = [a_result(seed=seed, score=0.8 if seed == 0 else 0.2) for seed in SEEDS]
    assert gated(runs(), few, bimodal=[BIMODAL | {"task": "mqar/quick"}]).exit_code == 4


LATER = BIMODAL | {"later": True}


def learning(a_result: Callable[..., Any], takes: Sequence[int], most: int = 10) -> list[Any]:
    """Runs that learn after so many looks, each of a thousand tokens; never after the last."""
    return [
        a_result(
            seed=seed,
            score=0.95 if looks <= most else 0.2,
            curve=[
                {"step": i, "tokens": 1000 * i, "accuracy": 0.95 if i >= looks else 0.2, "loss": 1.0}
                for i in range(1, most + 1)
            ],
        )
        for seed, looks in enumerate(takes)
    ]


@pytest.mark.parametrize(
    ("after", "later"),
    [
        ((7, 8, 9, 8, 9, 10), True),
        ((2, 3, 1, 2, 4, 3), False),
        ((1, 1, 1, 1, 2, 2), False),
        ((3, 4, 2, 3, 5, 11), False),
    ],
)
def test_seeds_that_learn_later_are_told_where_the_policy_counts_seeds(
    after: Sequence[int], later: bool, a_result: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    before = learning(a_result, (2, 3, 1, 2, 4, 3))
    found = gated(before, learning(a_result, after), bimodal=[LATER])
    (row,) = found.times
    assert (row.red, bool(found.later), found.exit_code) == (later, later, 4 if later else 0)
    assert not found.red, "all seeds or all but one still learn"
    if later:
        assert in_words(found) == snapshot
    assert not gated(before, learning(a_result, after), bimodal=[BIMODAL]).times, "unless it is asked for"


def test_what_a_baseline_would_show_counts_these_tests(a_result: Callable[..., Any]) -> None:
    before = learning(a_result, (2, 3, 1, 2, 4, 3))
    for also in ({}, {"later": True}):
        foreseen = gate(before, None, Policy.parse({"bimodal": [BIMODAL | also]}, where="policy"))
        judged = gated(before, before, bimodal=[BIMODAL | also])
        assert [row.level for row in foreseen.rows] == [row.level for row in judged.rows]


def test_where_half_never_learned_counts_are_told() -> None:
    sides = on_grid([3] * 11 + [11] * 13, 10), on_grid([9] * 11 + [11] * 13, 10)
    row = LaterRow(LearningPair("a cell", *sides), 0.001, red=True)
    (said,) = in_words(Gate((), (), (), (row,)))
    assert "11 of 24" in said


def test_a_run_that_stopped_as_it_had_learned_counts_as_learned(a_result: Callable[..., Any]) -> None:
    runs = learning(a_result, (2, 3, 1, 2, 4, 3))
    for run in runs:
        run["cell"]["protocol"]["settings"]["stop_at"] = 0.9
    (row,) = gated(runs, runs, bimodal=[LATER | {"learnt": 0.99}]).times
    assert row.pair.learned == (6, 6)


def test_what_nobody_learns_any_more_is_told_once(a_result: Callable[..., Any]) -> None:
    found = gated(learning(a_result, (2, 3, 1, 2, 4, 3)), learning(a_result, [11] * 6), bimodal=[LATER])
    assert (len(found.red), found.later, found.times[0].red) == (1, [], True)
    assert len(in_words(found)) == 1


@pytest.mark.slow
def test_seeds_that_learn_as_soon_as_before_are_rarely_called_later(a_result: Callable[..., Any]) -> None:
    draw, alarms, rounds = random.Random(5), 0, 400
    for _ in range(rounds):
        sides = [learning(a_result, [draw.randint(1, 12) for _ in range(8)]) for _ in range(2)]
        alarms += gated(*sides, bimodal=[LATER], alpha=0.1).exit_code == 4
    assert 0 < alarms <= 0.1 * rounds


@pytest.mark.parametrize(
    ("policy", "facts"),
    [
        ({"drops": 0.1}, ["'policy.drops'", "'policy.drop'"]),
        (
            {"bimodal": [BIMODAL | {"learned": 0.5}]},
            ["'policy.bimodal.0.learned'", "'policy.bimodal.0.learnt'"],
        ),
        ({"bimodal": [{"task": "mqar", "model": "deltanet"}]}, ["policy.bimodal.0.learnt must be given"]),
        ({"bimodal": {"task": "mqar"}}, ["mapping", "task, model and learnt"]),
        ({"bimodal": [BIMODAL | {"model": "deltanat"}]}, ["'mqar deltanat'", "'mqar deltanet'"]),
        ({"seeds": 1}, ["policy.seeds = 1"]),
        ({"drop": -1}, ["policy.drop = -1"]),
        ({"may_differ": ["python"]}, ["policy.may_differ.0 = python"]),
    ],
)
def test_a_policy_that_is_wrong_is_refused_in_a_sentence(
    runs: Callable[..., Any], policy: Any, facts: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        gated(runs(), runs(), **policy)
    assert [fact for fact in facts if fact not in str(refused.value)] == []


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text("seeds: 3\nbimodal: [{task: parity, model: deltanet, learnt: 0.9}]\n")
    found = load(tmp_path / "gate.yaml")
    assert (found.seeds, found.drop, found.bimodal[0].learnt) == (3, 0.02, 0.9)
    assert load(None) == Policy()
    with pytest.raises(UserError, match=r"cannot read the policy .*: No such file"):
        load(tmp_path / "none.yaml")


def test_the_kept_baseline_is_of_the_suite_that_is_run_against_it() -> None:
    suite = load_suite(str(ROOT / ".ci" / "variants.yaml"))
    cells = [{"cell": cell.identity, "search": None} for cell in expand(suite, device="cpu").cells]
    kept = Store(KEPT).all()
    assert {canonical(code_free_identity(one)) for one in cells} == {
        canonical(code_free_identity(result)) for result in kept
    }
    assert len(cells) == len(kept) == 8 * 6
    assert all(result["environment"]["commit"] and result["environment"]["dirty"] is False for result in kept)


def test_the_kept_baseline_can_be_gated_and_would_show_a_fall() -> None:
    kept = Store(KEPT).all()
    rule = load(ROOT / ".ci" / "gate.yaml").model_dump()
    assert gated(kept, kept, **rule).exit_code == 0
    assert all(one.can_be_red for one in gated(kept, kept, **rule).rows)
    fallen = [
        {**result, "metrics": {**result["metrics"], "accuracy": result["metrics"]["accuracy"] - 0.1}}
        for result in kept
    ]
    assert len(gated(kept, fallen).red) == 8, "ten points are shown in each of them"
    for label in {result["label"] for result in kept}:
        collapsed = [
            {**result, "metrics": {"accuracy": result["chance"]}} if result["label"] == label else result
            for result in kept
        ]
        found = gated(kept, collapsed, **rule)
        assert (found.exit_code, [one.pair.name.rpartition(", ")[2] for one in found.red]) == (4, [label])


@pytest.mark.slow
def test_runs_that_differ_by_rounding_alone_are_rarely_red() -> None:
    """A thousand times six seeds of each cell of decision 16 and their twins, which is no change."""
    noise, cells = random.Random(3), [*measured_pairs().values()]
    alarms = 0
    for _ in range(1000):
        pairs = []
        for place, cell in enumerate(cells):
            seeds = noise.sample(list(cell.index), len(SEEDS))
            pairs.append(SeedPair(str(place), [*cell[0.0][seeds]], [*cell[TWIN][seeds]]))
        alarms += any(one.red for one in judge(pairs, Policy()))
    assert alarms <= 10


@pytest.mark.slow
def test_a_fall_of_three_points_is_seen_in_runs_that_were_measured() -> None:
    """One cell of decision 16 after another, beside twins in all others."""
    noise, cells = random.Random(4), [*measured_pairs().values()]
    for fallen in range(len(cells)):
        seen = 0
        for _ in range(200):
            pairs = []
            for place, cell in enumerate(cells):
                seeds = noise.sample(list(cell.index), len(SEEDS))
                after = cell[TWIN][seeds] - 0.03 * (place == fallen)
                pairs.append(SeedPair(str(place), [*cell[0.0][seeds]], [*after]))
            seen += judge(pairs, Policy())[fallen].red
        assert seen >= 190, fallen

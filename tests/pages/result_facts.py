"""Sentences of docs/results.md, computed from stored results."""

from collections import Counter
from collections.abc import Iterable
from functools import cache, partial
from statistics import fmean

from linbench.results.comparison import Comparison
from linbench.results.packs import SUFFIX
from linbench.results.profile import Facet, facets, tracked_length
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracies_by_test
from tests.pages.fact import Fact, ends, short
from tests.results import leaderboard, softmax
from tests.results.drawn import ROOT
from tests.results.packed import packed, results_of_packs, unchecked

PAGE = "docs/results.md"
ZOO = ("zoo", "leaderboard")
"""The packs of the suite zoo, whole and in part."""


@cache
def facet(key: str) -> Facet:
    pack = "capacity" if key == "capacity" else "zoo-one-length"
    (found,) = (one for one in facets(packed(pack), ()) if one.key == key)
    return found


def capacity() -> Comparison:
    found = facet("capacity").comparison
    assert found is not None
    return found


def results_of(found: Facet, label: str) -> list[CellResult]:
    assert found.comparison is not None
    (row,) = (row for row in found.comparison.rows if row.label == label)
    return [*row.results]


def held(*labels: str) -> list[str]:
    return [f"{facet('capacity').estimates[label].value:.1f}" for label in labels]


def beside_the_first() -> list[str]:
    """Return how many variants have an interval that overlaps that of the first."""
    estimates = facet("capacity").estimates
    first = max(estimates.values(), key=lambda one: one.value)
    return [str(sum(one.ends[1] >= first.ends[0] for one in estimates.values()) - 1)]


def a_seed_of_mamba2() -> list[str]:
    """Return the best seed's recall of 64 pairs, and the mean."""
    results = results_of(facet("capacity"), "mamba2")
    at = [test["settings"]["kv_pairs"] for test in results[0]["tests"]].index(64)
    recalls = [found[at] for result in results if (found := accuracies_by_test(result))]
    return [short(max(recalls)), short(fmean(recalls))]


def endings() -> list[str]:
    """Return how many ladders ended, and how, and the points that the last doubling brought at the cap."""
    ladders = [result["ladder"] for result in capacity().results if "ladder" in result]
    ended = Counter(ladder["ended"] for ladder in ladders)
    gains = [
        100 * (last - before)
        for ladder in ladders
        if ladder["ended"] == "cap"
        for before, last in [[rung["accuracy"] for rung in ladder["rungs"][-2:]]]
    ]
    counts = [len(ladders), ended["optimum"], ended["flat"], ended["cap"]]
    return [*map(str, counts), f"{fmean(gains):.1f}"]


def sizes() -> list[str]:
    floats = [row.size["state_recurrent"] for row in capacity().rows if not row.size["state_cache"]]
    return [f"{end:,}" for end in (min(floats), max(floats))]


def chances() -> list[str]:
    """Return the chance of recall, parity and overwriting at one length and one budget."""
    found: dict[str, list[float]] = {}
    for one in packed("zoo-one-length"):
        found.setdefault(one.task, []).append(one.results[0]["chance"])
    others = [short(found[task][0], 3).rstrip("0") for task in ("parity", "variable_overwrite")]
    return [*ends(found["mqar"], 3), *others]


def old_values(*labels: str) -> list[float]:
    return [facet("stale").estimates[label].value for label in labels]


@cache
def zoo_facet(key: str, variables: int | None = None) -> Facet:
    (found,) = (one for one in facets(packed(*ZOO), ()) if (one.key, one.variables) == (key, variables))
    return found


def old_values_when_learned() -> list[str]:
    """Return the most old values of GLA, Mamba-2 and RetNet, with eight variables, and those of others.

    Raises AssertionError: RFA and Normalised DeltaNet are not the two that name most.
    """
    shares = {label: one.value for label, one in zoo_facet("stale", 8).estimates.items()}
    decays = max(shares[label] for label in ("gla", "mamba2", "retnet"))
    others = ("rwkv6", "hgrn2", "linear_attention", "rfa[directions=16]", "normalised_deltanet")
    assert tuple(sorted(shares, key=lambda label: -shares[label])[:2]) == others[-2:]
    return [short(decays), *(short(shares[label]) for label in others)]


def ladders_of_the_zoo() -> list[str]:
    """Return how many ladders the suite zoo has, how many ended in each way, and how many can go on."""
    return _endings(result for one in packed(*ZOO) for result in one.results)


def _endings(results: Iterable[CellResult]) -> list[str]:
    ended = Counter(result["ladder"]["ended"] if "ladder" in result else "open" for result in results)
    return [str(ended.total()), *(str(ended[how]) for how in ("optimum", "flat", "cap", "open"))]


def ladders_of_softmax() -> list[str]:
    """Return the same of the suite softmax, of the cells that the page shows."""
    return _endings(result for cell in softmax.cells() for row in cell.rows for result in row.results)


def beyond_what_fits() -> list[str]:
    """Return scores with 32 variables: the lowest and highest of recurrences but the sum, and the sum's."""
    comparison = zoo_facet("stale", 32).comparison
    assert comparison is not None
    means = {row.label: row.mean for row in comparison.rows if row.mean}
    others = [mean for label, mean in means.items() if label not in {"attention", "linear_attention"}]
    return [*ends(others), short(means["linear_attention"])]


def overwritten_beyond_what_fits() -> list[str]:
    """Return in how many seeds of C16 a sum answers nine of ten questions, of how many, and DeltaNet."""
    found: dict[str, list[bool]] = {"transnormer": [], "deltanet": []}
    for result in results_of_packs("claims/claims"):
        task = result["cell"]["task"]
        asked = task["name"] == "variable_overwrite" and task["settings"]["variables"] == 32
        if asked and "ladder" in result and result["label"] in found:
            found[result["label"]].append(result["metrics"]["accuracy"] >= 0.9)
    of_a_sum, of_the_rule = found.values()
    assert len(of_a_sum) == len(of_the_rule)
    return [str(sum(of_a_sum)), str(len(of_a_sum)), str(sum(of_the_rule))]


SIGNED = {
    *(f"{name}[neg_eigval=true]" for name in ("deltanet", "gated_deltanet", "kda", "comba")),
    *("deltaproduct", "gated_deltaproduct"),
}
"""Variants with the switch for negative eigenvalues on."""
SOMETIMES = {"rwkv7", "comba"}
"""Variants whose eigenvalues are negative where a step is larger than what a decay leaves."""


def tracked_when_learned() -> list[str]:
    """Return the length of parity that is tracked, as the median over seeds, with negative eigenvalues.

    These are the shortest and longest with the switch, that of RWKV-7 and Comba, the number of others, and
    the longest that any seed of these tracks.
    """
    found = zoo_facet("parity").estimates
    signed = [found[label].value for label in SIGNED]
    (sometimes,) = {found[label].value for label in SOMETIMES}
    others = [one.ends[1] for label, one in found.items() if label not in SIGNED | SOMETIMES]
    return [f"{number:.0f}" for number in (min(signed), max(signed), sometimes, len(others), max(others))]


def words_when_learned() -> list[str]:
    """Return how far DeltaProduct follows words, in how many seeds of how many.

    Raises AssertionError: another variant follows them, too.
    """
    found, label = zoo_facet("group"), "deltaproduct"
    assert [each for each, one in found.estimates.items() if one.ends[1]] == [label]
    farthest = found.estimates[label].ends[1]
    followed = [tracked_length(result) for result in results_of(found, label)]
    return [f"{farthest:.0f}", str(followed.count(farthest)), str(len(followed))]


def boarded() -> list[str]:
    """Return the number of variants that have the cells of the leaderboard and not all of the zoo."""
    return [str(len(zoo_facet("parity").estimates) - len(zoo_facet("stale", 32).estimates))]


def hours() -> list[str]:
    """Return the hours of training behind all stored cells, on an H200, an H100 and a CPU."""
    seconds: Counter[str] = Counter()
    for pack in (ROOT / "results").rglob(f"*{SUFFIX}"):
        for result in unchecked(pack):
            seconds[result["cell"]["device"]] += result["seconds"] / result["stack"]["size"]
    devices = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "cpu")
    return [f"{seconds[device] / 3600:.1f}" for device in devices]


def agreement_of_the_leaderboard() -> list[str]:
    """Return Kendall's tau of both orders, and the number of models.

    Raises AssertionError: tau is another without one of them.
    """
    tau, each = leaderboard.agreement(), leaderboard.without_each()
    assert {*each} == {tau}
    return [f"{tau:.2f}", str(len(each))]


def order_among_more() -> list[str]:
    """Return the number of models on the leaderboard, and tau of the order of the first seven there."""
    count, order = leaderboard.among_more()
    return [str(count), f"{order:.2f}"]


RESULT_FACTS = [
    Fact(
        "docs/decisions/0017-leaderboard.md",
        "Kendall's tau of both orders is {}, whichever of the {} models is left out",
        agreement_of_the_leaderboard,
        slow=True,
    ),
    Fact(
        "docs/decisions/0017-leaderboard.md",
        "Among the {} models that have them the seven stand in the order of all cells but for Mamba-2 and"
        " attention, which change places: Kendall's tau is {}.",
        order_among_more,
        slow=True,
    ),
    Fact(
        PAGE,
        "name an old value in at most {} of their answers after four overwrites, RWKV-6 in {}, HGRN2 in {}"
        " and linear attention, which has no decay, in {}. RFA, which has none either, names most, {}, and"
        " Normalised DeltaNet {}",
        old_values_when_learned,
        slow=True,
    ),
    Fact(
        PAGE,
        "follow parity up to {} to {} bits, the median over seeds, and RWKV-7 and Comba without them, in"
        " which a step can be larger than what the decay leaves, up to {}. None of the {} others does"
        " beyond {} bits",
        tracked_when_learned,
        slow=True,
    ),
    Fact(PAGE, "by DeltaProduct alone, up to {} letters in {} of {} seeds", words_when_learned, slow=True),
    Fact(PAGE, "of the ten cells of `zoo` for {} more", boarded, slow=True),
    Fact(PAGE, "which has asked them of {} more variants", boarded, slow=True),
    Fact(
        "docs/reliability.md",
        "Seven models ran in all cells so far, and {} in six of them",
        lambda: [str(len(zoo_facet("parity").estimates))],
        slow=True,
    ),
    Fact(
        PAGE,
        "Of {} ladders {} ended at the optimum, {} flat and {} at the largest budget; {} can still go on",
        ladders_of_the_zoo,
        slow=True,
    ),
    Fact(
        PAGE,
        "Of {} ladders {} ended at the optimum, {} flat and {} at the largest budget; {} can still go on",
        ladders_of_softmax,
        slow=True,
    ),
    Fact(
        PAGE,
        "and stands alone: {} of the flip-flop, {} of it where it is sparse and {} where it is dense; {} of"
        " pairs in 256 tokens and {} in 1,024; {} of counters in 256 and {} in 1,024; {} of the values"
        " before; of words of 16 letters {} with one layer and {} with two",
        partial(softmax.of_one_alone, "gated_attention"),
        slow=True,
    ),
    Fact(
        PAGE,
        "TransNormer, which only adds, answers nine of ten questions rightly in {} of {} seeds, if it is"
        " trained long enough, and DeltaNet in {}",
        overwritten_beyond_what_fits,
        slow=True,
    ),
    Fact(PAGE, "lie between {} and {}, linear attention at {}", beyond_what_fits, slow=True),
    Fact(PAGE, "{} hours of H200, {} of H100 and {} of CPU", hours, slow=True),
    Fact(PAGE, "Chance is {} to {} for recall, {} for parity and {} for overwriting", chances, slow=True),
    Fact(PAGE, "carries {} to {} floats", sizes, slow=True),
    Fact(
        PAGE,
        "Mamba-2 holds {} pairs for each thousand floats, DeltaProduct {}, DeltaNet {}, Gated DeltaNet {},"
        " GLA {}, TransNormer {}, mLSTM {} and KDA {}.",
        partial(
            held, "mamba2", "deltaproduct", "deltanet", "gated_deltanet", "gla", "transnormer", "mlstm", "kda"
        ),
        slow=True,
    ),
    Fact(PAGE, "overlaps those of {} other variants", beside_the_first, slow=True),
    Fact(
        PAGE,
        "DeltaNet falls to {} with them, Gated DeltaNet to {}",
        partial(held, "deltanet[neg_eigval=true]", "gated_deltanet[neg_eigval=true]"),
        slow=True,
    ),
    Fact(PAGE, "recalls {} of 64 pairs, where the mean is {}", a_seed_of_mamba2, slow=True),
    Fact(
        PAGE,
        "Of {} ladders {} ended at the optimum, {} flat and {} at the largest budget; one diverged. At"
        " the largest budget the last doubling brought {} points",
        endings,
        slow=True,
    ),
    Fact(
        PAGE,
        "after four overwrites {} of its answers are old values",
        lambda: [short(*old_values("transnormer"))],
        slow=True,
    ),
    Fact(
        PAGE,
        "name an old value {} to {} of the time",
        lambda: ends(old_values("retnet", "gla", "mamba2", "mlstm", "rwkv5", "rwkv6")),
        slow=True,
    ),
    Fact(
        PAGE,
        "DeltaNet and Gated DeltaNet name one {} of the time",
        lambda: [short(max(old_values("deltanet", "gated_deltanet")), 3)],
        slow=True,
    ),
]

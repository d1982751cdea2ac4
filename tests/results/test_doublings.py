"""Decision 13: its sentences follow from the stored scores, and the mark holds what it promises."""

import pytest

from linbench.results.rungs import LEAST_GAIN, LEAST_LOSS_GAIN, NEAR_OPTIMUM
from linbench.results.scores import AT_CHANCE
from tests.results.doublings import KINDS, MORE, PAGE, RULE, kind, load, marked


@pytest.mark.parametrize("name", list(KINDS))
def test_of_the_unmarked_at_most_a_tenth_gain_with_twice_the_tokens(name: str) -> None:
    scores = load()
    own = scores[kind(scores) == name]
    unmarked = own[~marked(own)[RULE]]
    assert (unmarked["twice"] - unmarked["own_accuracy"] > MORE).sum() <= 0.1 * len(unmarked)


def test_the_sentences_follow_from_the_scores() -> None:
    scores = load()
    own = scores[kind(scores) == "trained anew"]
    gained = own["twice"] - own["own_accuracy"] > MORE
    between = own["own_accuracy"].gt(own["chance"] + AT_CHANCE) & (
        own["own_accuracy"] < NEAR_OPTIMUM * own["optimum"]
    )
    change = own["own_accuracy"] - own["half_accuracy"]
    still = between & (change < LEAST_GAIN) & (own["own_loss"] > (1 - LEAST_LOSS_GAIN) * own["half_loss"])
    steady = still & (change > -LEAST_GAIN)
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"of {still.sum()} runs with a cosine" in text
    assert f"loss, {gained[still].sum()} gained" in text
    assert f"of the {steady.sum()} among them" in text
    assert f"either, {gained[steady].sum()} did" in text


@pytest.mark.slow
def test_all_that_is_unmarked_is_at_the_optimum() -> None:
    scores = load()
    unmarked = scores[~marked(scores)[RULE]]
    assert (unmarked["own_accuracy"] >= NEAR_OPTIMUM * unmarked["optimum"]).all()
    assert (unmarked["twice"] - unmarked["own_accuracy"] <= MORE).all()

"""Decision 13: its table and sentences follow from the stored scores, and the mark holds what it promises."""

import pytest

from linbench.results.rungs import LEAST_GAIN, LEAST_LOSS_GAIN, NEAR_OPTIMUM
from linbench.results.scores import AT_CHANCE
from tests.results.doublings import BELOW, KINDS, MORE, PAGE, kind, load, marked, shown, table


def test_the_table_is_made_of_the_stored_scores() -> None:
    assert shown() == table()


@pytest.mark.parametrize("name", list(KINDS))
def test_of_the_unmarked_at_most_a_tenth_gain_with_twice_the_tokens(name: str) -> None:
    scores = load()
    own = scores[kind(scores) == name]
    unmarked = own[~marked(own)["two flat steps"]]
    assert (unmarked["twice"] - unmarked["own_accuracy"] > MORE).sum() <= 0.1 * len(unmarked)


def test_the_sentences_follow_from_the_scores() -> None:
    scores = load()
    own = scores[kind(scores) == "trained anew"]
    gained = own["twice"] - own["own_accuracy"] > MORE
    mark = marked(own)["gain in the last fifth"]
    shares = gained[~mark & (own["own_accuracy"] < BELOW)].mean(), gained[mark].mean()
    between = own["own_accuracy"].gt(own["chance"] + AT_CHANCE) & (
        own["own_accuracy"] < NEAR_OPTIMUM * own["optimum"]
    )
    change = own["own_accuracy"] - own["half_accuracy"]
    still = between & (change < LEAST_GAIN) & (own["own_loss"] > (1 - LEAST_LOSS_GAIN) * own["half_loss"])
    steady = still & (change > -LEAST_GAIN)
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{shares[0]:.0%} of the unmarked".replace("%", " %") in text
    assert f"beside {shares[1]:.0%}".replace("%", " %") in text
    assert f"of {still.sum()} runs with a cosine" in text
    assert f"loss, {gained[still].sum()} gained" in text
    assert f"of the {steady.sum()} among them" in text
    assert f"either, {gained[steady].sum()} did" in text

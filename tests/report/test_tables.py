from collections.abc import Callable

from linbench.report.tables import caption, markdown, table
from linbench.results import comparisons
from linbench.store import Result

Make = Callable[..., Result]
SEARCH = {"accuracies": [[1e-3, 0.4], [3.16e-3, 0.9], [1e-2, 0.5]], "seeds": [1000, 1001], "best": 3.16e-3, "edge": False}


def test_a_searched_learning_rate_is_a_column_and_the_caption_says_how_it_was_chosen(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet", lr=3.16e-3, search=SEARCH), a_result("attention", lr=1e-3, search=SEARCH)])
    assert dict(zip(table(comparison)["model"], table(comparison)["learning rate"], strict=True)) == {"attention": "0.001", "deltanet": "0.00316"}
    assert "learning rate 0.001, 0.00316 (chosen by validation on seeds 1000, 1001 among 0.001 to 0.01), " in caption(comparison)
    assert "| learning rate |" in markdown(comparison).replace("  ", "")


def test_without_a_search_there_is_no_such_column(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet")])
    assert "learning rate" not in table(comparison)
    assert "chosen" not in caption(comparison)


def test_what_was_run_to_choose_a_rate_is_no_row(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet"), a_result("deltanet", seed=1000, lr=0.5, purpose="tuning")])
    assert [len(row.results) for row in comparison.rows] == [1]


def test_the_caption_tells_a_token_budget_from_epochs_of_a_set(a_result: Make) -> None:
    fixed = a_result("deltanet")
    assert "100 tokens in batches of 4" in caption(comparisons([fixed])[0])
    fixed["cell"]["protocol"]["settings"] |= {"examples": 5000, "epochs": 3}
    assert "3 epochs of 5,000 examples in batches of 4" in caption(comparisons([fixed])[0])

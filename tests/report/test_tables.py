import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from linbench.common.escape import latex as escaped
from linbench.report.data import ReportData
from linbench.report.table import Table, save_tables
from linbench.report.tables import all_tables
from linbench.report.tables.comparison import caption, table
from linbench.results.comparison import Comparison, comparisons
from linbench.results.frame import frame
from linbench.results.schema import Result
from linbench.results.scores import above_chance, further_metrics

Make = Callable[..., Result]
SEARCH = {
    "accuracies": [[1e-3, 0.4], [3.16e-3, 0.9], [1e-2, 0.5]],
    "seeds": [1000, 1001],
    "best": 3.16e-3,
    "edge": False,
}


def test_a_searched_learning_rate_is_a_column_and_the_caption_says_how_it_was_chosen(
    a_result: Make, snapshot: SnapshotAssertion
) -> None:
    (comparison,) = comparisons(
        [a_result("deltanet", lr=3.16e-3, search=SEARCH), a_result("attention", lr=1e-3, search=SEARCH)]
    )
    assert dict(
        zip(table(comparison).frame["model"], table(comparison).frame["learning rate"], strict=True)
    ) == {
        "attention": "0.001",
        "deltanet": "0.00316",
    }
    assert training_words(comparison) == snapshot
    assert "| learning rate |" in table(comparison).to_markdown().replace("  ", "")


def training_words(comparison: Comparison) -> str:
    """Return what a caption says of the training."""
    (clause,) = (clause for clause in caption(comparison).split("; ") if clause.startswith("training:"))
    return clause


def test_without_a_search_there_is_no_such_column(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet")])
    assert "learning rate" not in table(comparison).names
    assert "chosen" not in caption(comparison)


def test_what_was_run_to_choose_a_rate_is_no_row(a_result: Make) -> None:
    (comparison,) = comparisons(
        [a_result("deltanet"), a_result("deltanet", seed=1000, lr=0.5, purpose="tuning")]
    )
    assert [len(row.results) for row in comparison.rows] == [1]


def test_the_caption_tells_a_token_budget_from_epochs_of_a_set(
    a_result: Make, snapshot: SnapshotAssertion
) -> None:
    fixed = a_result("deltanet")
    budget = training_words(comparisons([fixed])[0])
    fixed["cell"]["protocol"]["settings"] |= {"examples": 5000, "epochs": 3}
    assert [budget, training_words(comparisons([fixed])[0])] == snapshot


@pytest.mark.parametrize(
    ("last", "doublings", "base"),
    [
        ({"step": 2, "tokens": 100}, 0, "100"),
        # half a step more: a budget is a whole number of steps
        ({"step": 3, "tokens": 120}, 0, "100"),
        ({"step": 20, "tokens": 1200}, 0, "1,200"),
        ({"step": 40, "tokens": 2400}, 1, "1,200"),
        # it stopped early
        ({"step": 1, "tokens": 50}, 0, "100"),
    ],
)
def test_the_caption_tells_the_tokens_that_were_trained(
    a_result: Make, last: dict[str, int], doublings: int, base: str
) -> None:
    result = a_result("deltanet")
    result["cell"]["protocol"]["settings"] |= {"tokens": 100, "doublings": doublings}
    result["curve"] = [{"accuracy": 0.5, "loss": 1.0, **last}]
    assert f"one budget of {base} tokens" in training_words(comparisons([result])[0])


PARTS: dict[str, Any] = {
    "test": [{"settings": {"kv_pairs": 4}}, {"settings": {"kv_pairs": 8}}],
    "train": [{"settings": {"kv_pairs": 2}, "examples": 5000}],
}


def several(make: Make, label: str, *scores: float, **more: object) -> Result:
    """Return a result with an accuracy for each of two tests, trained on something else."""
    metrics = [{"accuracy": score} for score in scores] or [{}, {}]
    tests = [
        {**part, "chance": 1 / part["settings"]["kv_pairs"], "metrics": one, "slices": {}}
        for part, one in zip(PARTS["test"], metrics, strict=True)
    ]
    result = make(label, score=sum(scores) / 2, tests=tests, **more)
    result["cell"]["task"] |= PARTS
    return result


def on_terminal(table: Table) -> list[Any]:
    console = Console(width=200)
    return list(table.to_terminal().__rich_console__(console, console.options))


def test_several_tests_have_a_table_of_their_own(a_result: Make, tmp_path: Path) -> None:
    results = [
        several(a_result, "deltanet", 0.9, 0.5),
        several(a_result, "deltanet", 0.7, 0.7, seed=1),
        several(a_result, "attention", status="diverged"),
    ]
    (comparison,) = comparisons([*results, several(a_result, "gla", status="failed")])
    assert table(comparison).appendix["By test"].frame.to_dict("records") == [
        {"model": "attention", "kv_pairs 4": "0.250", "kv_pairs 8": "0.125"},
        {"model": "deltanet", "kv_pairs 4": "0.800 ± 0.141", "kv_pairs 8": "0.600 ± 0.141"},
        {"model": "gla", "kv_pairs 4": "–", "kv_pairs 8": "–"},
    ]
    assert table(comparison).frame["accuracy"].tolist() == ["0.125", "0.700 ± 0.000", "–"]
    assert table(comparison).to_markdown().count("| deltanet ") == 2
    assert len(on_terminal(table(comparison))) == 2
    names = {path.name: path.read_text() for path in save_tables([table(comparison)], tmp_path)}
    assert names["mqar-quick-native-tests.csv"].splitlines() == [
        "model,test,accuracy,accuracy_sd",
        "attention,kv_pairs 4,0.25,",
        "attention,kv_pairs 8,0.125,",
        "deltanet,kv_pairs 4,0.8,0.141421",
        "deltanet,kv_pairs 8,0.6,0.141421",
        "gla,kv_pairs 4,,",
        "gla,kv_pairs 8,,",
    ]


def test_other_metrics_have_a_table_of_their_own(a_result: Make, tmp_path: Path) -> None:
    results = [
        a_result("deltanet", seed, metrics={"accuracy": 0.5, "nll": 1.0, "stale": stale})
        for seed, stale in ((0, 0.25), (1, 0.35))
    ]
    (comparison,) = comparisons(
        [*results, a_result("attention"), a_result("gla", status="diverged", metrics={})]
    )
    assert table(comparison).appendix["Other metrics"].frame.to_dict("records") == [
        {"model": "attention", "stale": "–"},
        {"model": "deltanet", "stale": "0.300"},
        {"model": "gla", "stale": "–"},
    ]
    assert "Other metrics:" in table(comparison).to_markdown()
    assert (tmp_path / "mqar-quick-native-metrics.csv") in save_tables([table(comparison)], tmp_path)
    rows = (tmp_path / "mqar-quick-native-metrics.csv").read_text().splitlines()
    assert rows == [
        "model,metric,mean,sd",
        "attention,stale,,",
        "deltanet,stale,0.3,0.0707107",
        "gla,stale,,",
    ]
    assert not table(comparisons([a_result("attention")])[0]).appendix


def test_of_a_long_curve_the_beginning_and_powers_of_two_are_shown(a_result: Make) -> None:
    curve = {f"weight_on_old_{j}": 0.5 for j in range(33)}
    (comparison,) = comparisons(
        [a_result("deltanet", metrics={"accuracy": 0.5, "stale_previous": 0.1, **curve})]
    )
    assert table(comparison).appendix["Other metrics"].names == [
        "model",
        "stale_previous",
        *(f"weight_on_old_{j}" for j in (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32)),
    ]


def test_the_error_of_vectors_is_among_other_metrics(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet", metrics={"accuracy": 0.9, "mse": 0.125})])
    assert table(comparison).appendix["Other metrics"].frame.to_dict("records") == [
        {"model": "deltanet", "mse": "0.125"}
    ]


def test_bits_in_weights_are_divided_by_parameters(a_result: Make) -> None:
    """Bits below 0 count as none, and one model that was not built has no quotient."""
    held = {"accuracy": 0.5, "name_bits": -50.0, "value_bits": 300.0}
    result = a_result("deltanet", metrics=held)
    parameters = result["model"]["parameters"]
    assert further_metrics(result)["bits_per_parameter"] == 300 / parameters
    assert frame([result])["bits_per_parameter"].tolist() == [300 / parameters]
    (comparison,) = comparisons([result])
    assert table(comparison).appendix["Other metrics"].names[-1] == "bits_per_parameter"
    assert "bits_per_parameter" not in further_metrics({**result, "model": {}})
    assert "bits_per_parameter" not in further_metrics(a_result("gla"))


def test_accuracy_is_also_given_above_chance(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet", score=0.5625), a_result("gla", status="diverged")])
    assert table(comparison).frame["scaled"].tolist() == ["0.500", "0.000"]


def test_where_chance_is_all_there_is_nothing_is_above_it() -> None:
    assert above_chance(1.0, 1.0) == 0.0


def test_the_caption_tells_what_was_trained_and_tested_on(
    a_result: Make, snapshot: SnapshotAssertion
) -> None:
    (comparison,) = comparisons([several(a_result, "deltanet", 0.9, 0.5)])
    assert caption(comparison).split(". ") == snapshot


def test_a_single_test_has_no_table_of_its_own(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("deltanet")])
    assert "By test" not in table(comparison).appendix
    assert "By test" not in table(comparison).to_markdown()
    assert len(on_terminal(table(comparison))) == 1
    assert "mqar quick (kv_pairs 8); " in caption(comparison)


def test_mixtures_and_tests_do_not_share_a_table_with_others(a_result: Make) -> None:
    assert len(comparisons([a_result("deltanet"), several(a_result, "deltanet", 0.9, 0.5)])) == 2


def test_latex_has_a_table_for_each_with_rules_and_nothing_that_it_would_take_for_a_command(
    a_result: Make,
) -> None:
    metrics = {"accuracy": 0.5, "stale_previous": 0.1}
    (comparison,) = comparisons(
        [
            a_result(name, seed, metrics=metrics)
            for name in ("rwkv_7", "50%&$#{}~^\\end<|>")
            for seed in (0, 1)
        ]
    )
    text = table(comparison).to_latex()
    assert (
        text.count("\\begin{table}")
        == text.count("\\end{table}")
        == text.count("\\toprule")
        == text.count("\\bottomrule")
        == 2
    )
    (row,) = (line.split(" & ") for line in text.splitlines() if line.startswith("rwkv\\_7 & 0.500"))
    assert row[1] == "0.500 $\\pm$ 0.000"
    assert "stale\\_previous" in text
    assert "\\label{tab:mqar-quick-native-metrics}" in text
    assert text.startswith("% \\usepackage")
    depth = 0
    for line in text.splitlines():
        bare = line.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
        depth += bare.count("{") - bare.count("}")
        assert depth >= 0
    assert depth == 0, "every brace that opens is closed"


def test_what_latex_has_no_letter_for() -> None:
    assert escaped("50%&$#_{}") == "50\\%\\&\\$\\#\\_\\{\\}"
    words = ["textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"]
    letters = dict(zip("bcdefg", words, strict=True))
    expected = "".join(f"\\{word}{{}}{letter}" for letter, word in letters.items())
    assert escaped("a\\b~c^d<e>f|g\n h") == f"a{expected} h"


def test_csv_has_numbers_that_a_program_can_read(a_result: Make) -> None:
    model = {
        "parameters": 123304,
        "flops_per_token": None,
        "state": {"total": 5760, "recurrent": 4608, "cache": 0, "convolution": 1152, "shift": 0},
    }
    learned = [a_result("deltanet", seed, 0.5 + 0.25 * seed, model=model) for seed in (0, 1)]
    (comparison,) = comparisons([*learned, a_result("gla", status="failed", metrics={}, model={})])
    read = pd.read_csv(StringIO(table(comparison).to_csv())).set_index("model")
    assert read["accuracy"].tolist() == [0.625, pytest.approx(float("nan"), nan_ok=True)]
    assert read.loc["deltanet", ["parameters", "state_total", "state_convolution"]].tolist() == [
        123304,
        5760,
        1152,
    ]
    assert read.loc["deltanet", "accuracy_sd"] == pytest.approx(0.25 / 2**0.5, rel=1e-5)
    assert read["flops_per_token"].isna().all()
    assert table(comparison).frame.loc[
        0, ["parameters", "state floats", "of them", "FLOPs/token"]
    ].tolist() == [
        "123,304",
        "5,760",
        "recurrent 4,608, convolution 1,152",
        "undeclared",
    ]
    assert table(comparison).frame.loc[1, ["parameters", "state floats", "of them"]].tolist() == [
        "–",
        "–",
        "–",
    ]


def test_accuracy_by_task_is_written_in_every_format(a_result: Make, tmp_path: Path) -> None:
    results = [
        a_result("deltanet", score=0.5),
        a_result("deltanet", kv_pairs=4, score=0.75, marks=["lr_edge"]),
    ]
    found = comparisons(results)
    written = {
        path.suffix: path.read_text()
        for path in save_tables(all_tables(ReportData(results)), tmp_path)
        if path.name.startswith("by-task")
    }
    assert "0.750 †" in written[".md"]
    assert "\\begin{table}" in written[".tex"]
    numbers = json.loads(written[".json"])["rows"]
    assert [(row["task"], row["accuracy"], row["in_doubt"]) for row in numbers] == [
        (one.title, one.rows[0].mean, one.rows[0].mean == 0.75) for one in found
    ]
    assert len(written[".csv"].splitlines()) == 3


def test_as_json_there_is_a_number_for_every_seed(a_result: Make) -> None:
    (comparison,) = comparisons(
        [a_result("deltanet", seed, 0.5 + 0.25 * seed) for seed in (0, 1)]
        + [a_result("gla", status="failed", metrics={})]
    )
    found = table(comparison).to_json()
    assert found["accuracies"] == {"deltanet": {"0": 0.5, "1": 0.75}, "gla": {"0": None}}
    assert [(row["model"], row["accuracy"]) for row in found["rows"]] == [("deltanet", 0.625), ("gla", None)]
    assert json.loads(json.dumps(found)) == found
    assert found["results"] == comparison.fingerprint
    assert found["caption"] == caption(comparison)


def test_a_name_of_several_lines_stays_in_its_row(a_result: Make) -> None:
    (comparison,) = comparisons([a_result("one\n| two")])
    assert "| one \\| two" in table(comparison).to_markdown()

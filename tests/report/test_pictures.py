import io
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from linbench.report.figures import DISTANCE_BINS, _binned, _edges, learning_curves, save_figures
from linbench.report.tables import caption, markdown, rich_tables, table
from linbench.results import comparisons


def curve(*accuracies: float) -> list[dict[str, float]]:
    return [{"step": i, "tokens": 100 * i, "accuracy": value, "loss": 1.0, "nll": 1.0} for i, value in enumerate(accuracies, 1)]


SLICES = {"distance": {"at": [1, 2, 9], "accuracy": {"sum": [3, 1, 0], "weight": [3, 3, 3]}}}


def test_a_figure_names_every_model_and_carries_the_hash_of_its_results(a_result: Any, tmp_path: Path) -> None:
    results = [a_result(label, seed, curve=curve(0.1, 0.5, score), slices=SLICES) for label, score in (("one", 0.9), ("two", 0.91)) for seed in (0, 1)]
    written = save_figures(comparisons(results), tmp_path)
    assert len(written) == 6
    for name in ("learning-curves", "distance"):
        svg = (tmp_path / f"mqar-quick-native-{name}.svg").read_text()
        assert "one" in svg
        assert "two" in svg
        hashed = (tmp_path / f"mqar-quick-native-{name}.txt").read_text().split("Drawn from results ")[1].strip(".\n")
        assert hashed in svg
        assert (tmp_path / f"mqar-quick-native-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_other_results_another_hash(a_result: Any, tmp_path: Path) -> None:
    texts = []
    for seed in (0, 1):
        save_figures(comparisons([a_result(seed=seed, curve=curve(0.1, 0.5))]), tmp_path)
        texts.append((tmp_path / "mqar-quick-native-learning-curves.txt").read_text())
    assert texts[0].splitlines()[-1] != texts[1].splitlines()[-1]


def test_nothing_stored_nothing_drawn(a_result: Any, tmp_path: Path) -> None:
    assert save_figures(comparisons([a_result(status="failed", metrics={})]), tmp_path) == []


def test_a_table_says_what_it_is(a_result: Any) -> None:
    (found,) = comparisons([a_result("a|b", seed, score, form="controlled") for seed, score in ((0, 0.5), (1, 0.7))])
    text = markdown(found)
    assert "a\\|b" in text
    assert "0.600 ± 0.141" in text
    assert "chance is 0.125" in text
    assert "seeds 0, 1" in text
    assert "models alike in d_model 64, heads 2, conv 4" in text
    assert "Controlled form" in text


def test_unmatched_sizes_are_said(a_result: Any) -> None:
    (found,) = comparisons([a_result("a", form="controlled"), a_result("b", form="controlled", parameters=1100)])
    assert "parameters differ by 10.0% and are NOT matched" in caption(found)
    (native,) = comparisons([a_result("a"), a_result("b", parameters=1100)])
    assert "differ by" not in caption(native)


def test_what_is_not_declared_is_said_to_be(a_result: Any) -> None:
    undeclared = a_result(model={"parameters": 10, "state": None, "flops_per_token": None})
    (row,) = table(comparisons([undeclared])[0]).to_dict("records")
    assert (row["state floats"], row["FLOPs/token"], row["parameters"]) == ("undeclared", "undeclared", "10")
    (row,) = table(comparisons([a_result(status="failed", metrics={}, model={})])[0]).to_dict("records")
    assert (row["accuracy"], row["state floats"], row["parameters"]) == ("–", "–", "–")


def test_brackets_in_a_name_are_shown_on_a_terminal(a_result: Any) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*rich_tables(comparisons([a_result("attention[window=4]"), a_result("[red]b[/red]")])[0]))
    text = console.export_text()
    assert "attention[window=4]" in text
    assert "[red]b[/red]" in text


def test_bins_hold_about_as_many_answers_each() -> None:
    counts = {"at": list(range(1, 101)), "accuracy": {"sum": [1] * 100, "weight": [1] * 50 + [3] * 50}}
    edges = _edges([counts, counts])
    binned = _binned(counts, edges)
    assert len(edges) == len(binned) == DISTANCE_BINS
    assert edges[-1] == 100
    assert [at for at, _ in binned] == sorted(at for at, _ in binned)
    assert binned[0][1] == 1.0
    assert binned[-1][1] == pytest.approx(1 / 3)


def test_a_diverged_seed_counts_as_chance_from_there_on(a_result: Any) -> None:
    results = [a_result(seed=0, curve=curve(0.2, 0.6, 1.0)), a_result(seed=1, curve=curve(0.2), status="diverged", metrics={})]
    axes = Figure().add_subplot()
    assert learning_curves(axes, comparisons(results)[0])
    drawn = max(axes.get_lines(), key=lambda line: len(line.get_xdata()))
    assert list(drawn.get_ydata()) == pytest.approx([0.2, (0.6 + 0.125) / 2, (1.0 + 0.125) / 2])

"""The table and the figure of capacity."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.table import Table, save_tables
from linbench.report.tables import all_tables
from linbench.report.tables.capacity import capacity_tables
from linbench.results.comparison import comparisons
from linbench.results.schema import Result
from tests.helpers.capacity import compared, recall_result
from tests.helpers.figures import FIGURES, drawings

Make = Callable[..., Result]
PAIRS = (16, 32, 64, 128)
PER_FLOATS, IF_LEARNED = "pairs per 1,000 floats at 90%", "pairs at 90% if learned"


def falling(make: Make, label: str, held: float, count: int = 5, **more: Any) -> list[Result]:
    """Return seeds that recall half of about so many pairs."""
    generator = np.random.default_rng(int(held))
    results = []
    for seed in range(count):
        own = held * 2 ** (0.2 * generator.standard_normal())
        recalls = {pairs: 1 / (1 + (pairs / own) ** 3) for pairs in PAIRS}
        results.append(recall_result(make, label, recalls, seed, form="controlled", **more))
    return results


@pytest.fixture
def results(a_result: Make) -> list[Result]:
    """Six variants: three ordinary, one with a cache, one that is two-valued, one that learned nothing."""
    always, never = dict.fromkeys(PAIRS, 1.0), dict.fromkeys(PAIRS, 0.0)
    softmax = [
        recall_result(a_result, "attention", always, seed, form="controlled", recurrent=0, cache=64)
        for seed in range(5)
    ]
    stuck = [recall_result(a_result, "mamba2", never, seed, form="controlled") for seed in range(5)]
    diverged = recall_result(
        a_result, "gla", never, 5, form="controlled", status="diverged", metrics={}, marks=["lr_edge"]
    )
    return [
        *softmax,
        *falling(a_result, "linear_attention", 30),
        *falling(a_result, "deltanet", 200),
        *falling(a_result, "kda", 70, 3, recurrent=104),
        *falling(a_result, "gla", 60),
        diverged,
        *stuck,
    ]


def of(results: list[Result]) -> Table:
    (made,) = capacity_tables(ReportData(results))
    return made


def rows(made: Table) -> dict[str, dict[str, str]]:
    return {row["model"]: row for row in made.frame.to_dict("records")}


def test_a_table_of_capacity(results: list[Result], snapshot: SnapshotAssertion) -> None:
    assert of(results).to_markdown().splitlines() == snapshot


def test_the_most_pairs_for_a_thousand_floats_stand_first(results: list[Result]) -> None:
    found = rows(of(results))
    assert list(found) == ["deltanet", "kda", "gla", "linear_attention", "mamba2", "attention"]
    assert (found["attention"]["recurrent floats"], found["attention"]["rank"]) == ("grows", "–")
    assert found["attention"]["pairs at 90%"] == ">= 128"
    assert found["mamba2"]["pairs at 90%"] == "< 16"
    assert found["mamba2"][PER_FLOATS] == "< 160"
    assert found["deltanet"]["rank"] == "1"


def test_a_row_says_how_many_seeds_are_missing(results: list[Result]) -> None:
    found = rows(of(results))
    assert {name: row["missing"] for name, row in found.items() if row["missing"]} == {"kda": "2", "gla": "4"}
    assert {name: row["learned"] for name, row in found.items() if row[IF_LEARNED]} == {"gla": "5/6"}


def test_one_seed_has_no_brackets(a_result: Make) -> None:
    found = rows(of(falling(a_result, "deltanet", 60, 1)))["deltanet"]
    assert "[" not in found["pairs at 50%"]
    assert (found["missing"], found["rank"]) == ("4", "–")


def test_columns_without_anything_are_left_out(a_result: Make) -> None:
    made = of(falling(a_result, "deltanet", 60))
    assert {"missing", IF_LEARNED, "marks"}.isdisjoint(made.names)
    assert {"missing", IF_LEARNED} <= set(
        of(falling(a_result, "gla", 60, 1) + stuck(a_result, "gla", 1)).names
    )


def stuck(make: Make, label: str, seed: int) -> list[Result]:
    """Return one seed that learned nothing."""
    return [recall_result(make, label, dict.fromkeys(PAIRS, 0.0), seed, form="controlled")]


def test_sizes_that_are_not_declared_or_not_there(a_result: Make) -> None:
    none = falling(a_result, "base_conv", 60, recurrent=0)
    undeclared = falling(
        a_result, "mine", 60, model={"parameters": 1, "state": None, "flops_per_token": None}
    )
    found = rows(of([*none, *undeclared]))
    assert {name: row["recurrent floats"] for name, row in found.items()} == {
        "base_conv": "none",
        "mine": "undeclared",
    }


def test_the_same_results_make_the_same_files(results: list[Result], tmp_path: Path) -> None:
    once, again = tmp_path / "once", tmp_path / "again"
    files = [save_tables([of(own)], folder) for own, folder in ((results, once), (results[::-1], again))]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
    records = json.loads(next(path for path in files[0] if path.suffix == ".json").read_text())["rows"]
    by_model = {record["model"]: record for record in records}
    assert by_model["attention"]["pairs_at_90"] is None
    assert by_model["deltanet"]["pairs_per_1000_floats_at_90"] == pytest.approx(
        10 * by_model["deltanet"]["pairs_at_90"]
    )


def test_it_is_printed_beside_the_table_of_its_comparison(results: list[Result]) -> None:
    titles = [made.title for made in all_tables(ReportData(results), printed=True)]
    assert len(titles) == 2
    assert [title.startswith("Capacity") for title in titles] == [False, True]


def test_without_several_numbers_of_pairs_there_is_neither_table_nor_figure(a_result: Make) -> None:
    data = ReportData([a_result("deltanet")])
    assert capacity_tables(data) == []
    assert not FIGURES["capacity"].applies(data.comparisons[0])


def drawn(results: list[Result]) -> list[Axes]:
    sheet = Figure()
    assert FIGURES["capacity"].draw_on(sheet, compared(results))
    return sheet.axes


def test_a_line_is_the_mean_recall_and_diverged_runs_are_at_chance(a_result: Make) -> None:
    recalls = {16: 0.9, 32: 0.5, 64: 0.1}
    one = recall_result(a_result, "deltanet", recalls)
    diverged = recall_result(a_result, "deltanet", recalls, 1, status="diverged", metrics={})
    (axes,) = drawn([one, diverged])
    thick = max(axes.lines, key=lambda line: line.get_linewidth() if len(line.get_xdata()) == 3 else 0)  # type: ignore[arg-type]
    assert list(thick.get_xdata()) == [16, 32, 64]  # type: ignore[arg-type]
    assert list(thick.get_ydata()) == pytest.approx([0.45, 0.25, 0.05])  # type: ignore[arg-type]
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16", "32", "64"]


def test_many_models_have_a_panel_for_each_generation(a_result: Make) -> None:
    names = [
        "linear_attention",
        "transnormer",
        "performer",
        "rfa",
        "retnet",
        "gla",
        "hgrn2",
        "mamba2",
        "mlstm",
    ]
    results = [one for name in [*names, "deltanet", "kda"] for one in falling(a_result, name, 60, 2)]
    assert len(drawn(results)) > 1


def test_the_figure_is_the_same_bytes_again(results: list[Result]) -> None:
    (found,) = comparisons(results)
    (drawing,) = drawings(found, ["capacity"])
    assert drawing.pictures(["svg"]) == drawing.pictures(["svg"])

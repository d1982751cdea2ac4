"""Whole suites: how long they took, and where the time of workers went."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from linbench.bench import run as measured
from linbench.bench import sweep as sweeps
from linbench.bench.sweep import SweepCase, plan
from linbench.common.errors import HopelessError
from linbench.engine.executors import choose_executor
from linbench.engine.meter import FIRST_STEPS, PARTS
from linbench.experiments.learning_rates import default_search
from linbench.report.tables.sweeps import sweep_tables
from linbench.results.schema import misfit
from linbench.results.store import SWEEP, Store
from linbench.results.sweeps import REST, shares
from tests.helpers.cells import build_cells, tiny_settings

TINY = tiny_settings(20)
SUITE = {
    "about": "small",
    "tasks": ["mqar"],
    "models": ["deltanet", "attention"],
    "seeds": "0,1",
    "set": TINY,
}
TOKENS = 4 * TINY["protocol.tokens"]
SLOW = pytest.mark.slow  # a worker takes seconds to start


@pytest.fixture
def suite() -> str:
    """A file of a suite with four cells in two groups."""
    Path("small.yaml").write_text(yaml.safe_dump(SUITE), encoding="utf-8")
    return "small.yaml"


def a_case(*, workers: int = 0, **more: Any) -> SweepCase:
    cells = build_cells("deltanet", "attention", settings=TINY)
    executor = choose_executor(device="cpu", options={"workers": workers})
    return plan("small", cells, executor=executor, **more)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
def test_a_suite_is_measured_and_nothing_else_is_kept(
    linbench: Callable[..., Any], suite: str, workers: int
) -> None:
    words = ["bench", "sweep", suite, "--device", "cpu", "--workers", str(workers), "--results", "kept"]
    ended = linbench(*words, "--json")
    assert ended.code == 0
    (found,) = json.loads(ended.out)
    bench, spent = found["bench"], found["spent"]
    assert (bench["suite"], bench["workers"], bench["devices"]) == (suite, workers, max(1, workers))
    assert (spent["cells"], spent["failed"], spent["tokens"]) == (4, 0, TOKENS)
    assert spent["parts"].keys() == set(PARTS)
    assert spent["parts"][FIRST_STEPS] == 0
    assert min(spent["parts"].values()) >= 0
    assert 0 < sum(spent["parts"].values()) <= max(1, workers) * spent["seconds"]
    of_parts = shares(found)
    assert sum(of_parts.values()) == pytest.approx(1.0)
    assert 0 <= of_parts[REST] < 1
    assert [path.stem for path in Path("kept").iterdir() if path.is_file()] == [found["id"]]
    assert not Path("results").exists()
    assert Store("kept").by_kind()[SWEEP] == [found]

    again = linbench(*words, "--json")
    assert json.loads(again.out) == [found]
    assert "deltanet" not in again.err, "nothing was trained"


@pytest.mark.slow
def test_the_table(linbench: Callable[..., Any], suite: str, snapshot: SnapshotAssertion) -> None:
    words = ["--device", "cpu", "--workers", "0", "--results", "kept"]
    linbench("bench", "sweep", suite, *words)
    narrow = linbench("bench", "sweep", suite, *words, "--model", "gla", "--seeds", "3", "--stack", "1")
    assert narrow.code == 0
    (of_both,) = json.loads(linbench("table", "--results", "kept", "--format", "json").out)
    assert sorted(row["cells"] for row in of_both["rows"]) == [1, 4]
    (made,) = sweep_tables(Store("kept").by_kind()[SWEEP])
    columns = [column.name for column in made.columns]
    # the parts are ordered by how much they took
    assert columns[:8] == snapshot
    assert {*columns[8:12]} == set(PARTS)
    assert columns[12:] == [REST, "notes"]
    assert made.caption.partition(" Code:")[0] == snapshot
    page = linbench("report", "--results", "kept")
    assert made.title in Path(page.out.strip()).read_text(encoding="utf-8")


def test_what_tells_suites_apart() -> None:
    case = a_case()
    assert (case.id, str(case)) == (a_case().id, "small, 4 cells")
    fewer = plan("small", case.cells[:3], executor=case.executor)
    others = [
        a_case(workers=1),
        a_case(workers=2),
        a_case(stack=1),
        a_case(search=default_search()),
        fewer,
        plan("other", case.cells, executor=case.executor),
        plan("small", case.cells[::-1], executor=case.executor),
    ]
    assert len({case.id, *(other.id for other in others)}) == len(others) + 1


def test_a_suite_with_searches_and_rungs(tmp_path: Path) -> None:
    settings = TINY | {"protocol.schedule": "wsd", "protocol.rungs": 2}
    cells = build_cells("deltanet", seeds=[0], settings=settings)
    executor = choose_executor(device="cpu", options={"workers": 0})
    (result,) = measured.run(
        [plan("rungs", cells, executor=executor)], Store(tmp_path), tell=lambda line: None
    )
    spent: Any = result.get("spent")
    assert spent["cells"] == 2
    # of the second rung's 40 steps, 16 are those of the first before its rate fell
    assert spent["tokens"] == (20 + 40 - 16) * TINY["protocol.tokens"] // 20


def test_a_suite_that_cannot_be_run_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def hopeless(*given: Any, **more: Any) -> None:
        raise HopelessError("no learning rate of deltanet can be chosen.")

    monkeypatch.setattr(sweeps, "carry_out", hopeless)
    (result,) = measured.run([a_case()], Store(tmp_path), tell=lambda line: None)
    assert (result["status"], result.get("spent")) == ("failed", None)
    (made,) = sweep_tables(Store(tmp_path).by_kind()[SWEEP])
    assert made.rows[0][-1].text == snapshot


def test_a_suite_with_failed_cells_says_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (result,) = measured.run([a_case()], Store(tmp_path), tell=lambda line: None)
    altered: Any = {**result, "spent": {**result["spent"], "failed": 1}}  # type: ignore[typeddict-item]
    assert misfit(altered) is None
    (made,) = sweep_tables([altered])
    assert made.rows[0][-1].text == snapshot
    altered["spent"] = {**altered["spent"], "tokens": -1}
    assert misfit(altered) == snapshot

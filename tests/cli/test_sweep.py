"""`linbench sweep`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.engine.runner import is_final
from linbench.experiments.cell import SCHEMA
from linbench.results.store import Store
from tests.helpers.records import as_if_on
from tests.helpers.suites import TINY


@pytest.fixture
def sweep(linbench: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """The verb on a suite of two models and two seeds."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    return lambda *words, **more: linbench(
        "sweep", "tiny.yaml", "--device", "cpu", "--workers", "0", *words, **more
    )


def lines(text: str) -> list[str]:
    """Return the lines about finished cells."""
    return [line for line in text.splitlines() if " seed " in line and "/" in line.split()[0]]


@pytest.mark.slow
def test_a_suite_runs_and_is_not_repeated(sweep: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = sweep()
    assert ended.code == 0, ended.err
    assert ended.out.count("### mqar") == 1
    assert "| deltanet" in ended.out
    assert len(lines(ended.err)) == 4
    assert "together" in ended.err, "seeds of one model train as one program"
    assert re.sub(r"in \d+ \w+, [\d,]+", "in N s, N", ended.err.splitlines()[-1]) == snapshot
    again = sweep()
    assert (again.code, again.out) == (0, ended.out)
    assert again.err.count("finished earlier") == 4
    assert "tokens/s" not in again.err


@pytest.mark.slow
def test_a_dry_run_tells_and_runs_nothing(
    sweep: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ended = sweep("--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines() == snapshot
    assert not (tmp_path / "results").exists()
    sweep("--only", "deltanet")
    assert sweep("--dry-run").out.splitlines()[0] == snapshot
    told = json.loads(sweep("--dry-run", "--json").out)
    assert [group["left"] for group in told["groups"]] == [0, 2]
    assert told["groups"][1]["seconds"] > 0


@pytest.mark.slow
def test_parts_of_a_suite(sweep: Callable[..., Any]) -> None:
    shards = [set(json.loads(sweep("--dry-run", "--json", "--shard", f"{i}/2").out)["cells"]) for i in (1, 2)]
    whole = set(json.loads(sweep("--dry-run", "--json").out)["cells"])
    assert shards[0] | shards[1] == whole
    assert not shards[0] & shards[1]
    assert len(shards[0]) == len(shards[1]) == 2
    assert len(json.loads(sweep("--only", "linear*", "--limit", "1", "--json").out)) == 1
    assert len(json.loads(sweep("--only", "linear*", "--limit", "1", "--json").out)) == 1
    assert "every cell is finished" in sweep("--only", "linear*", "--limit", "1").err


SEARCH = "search: {seeds: [100], extensions: 0}\n"


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch, a_result: Callable[..., Any]) -> list[Any]:
    """Instead of training: cells have an accuracy that is best at 1e-3, but where `statuses` of a model say
    otherwise; and what was run."""

    class Runs(list[Any]):
        statuses: ClassVar[dict[str, str]] = {}

        def __call__(
            self,
            cells: list[Any],
            store: Any,
            *_: Any,
            retry: bool = True,
            next_cells: Any = lambda _: (),
            **__: Any,
        ) -> list[Any]:
            found: dict[str, Any] = {}
            while new := [cell for cell in cells if cell.id not in found]:
                for cell in new:
                    if not is_final(store.get(cell.id), again=False, retry=retry):
                        self.append(cell)
                        store.prepare()
                        store.put(self.result(cell))
                    found[cell.id] = store.get(cell.id)
                cells = list(next_cells(found))
            return list(found.values())

        def result(self, cell: Any) -> Any:
            score = 0.9 if cell.protocol.lr == 1e-3 else 0.5
            more = {
                "cell": cell.identity,
                "id": cell.id,
                "schema": SCHEMA,
                "purpose": cell.purpose,
                "curve": [{"accuracy": score, "tokens": 640, "step": 10, "loss": 1.0}],
            }
            return (
                a_result(cell.model.label, cell.seed, score)
                | more
                | {
                    "status": self.statuses.get(cell.model.label, "ok"),
                    "reason": "so",
                }
            )

    runs = Runs()
    for module in ("ladder", "lr_search", "runner"):
        monkeypatch.setattr(f"linbench.engine.{module}.run_cells", runs)
    return runs


@pytest.mark.slow
def test_a_dry_run_tells_what_is_left_on_a_device_of_another_host(
    sweep: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    sweep("--only", "deltanet")
    store = Store("results")
    for result in store.all():
        store.put(as_if_on("NVIDIA T4", result))
    planned = sweep("--dry-run", "--device", "t4").out.splitlines()
    assert [re.sub(r"about [\d.]+ \w+", "about N s", line) for line in planned] == snapshot
    refused = sweep("--device", "t4")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.partition("Allowed")[0] == snapshot


@pytest.mark.slow
def test_a_limit_goes_through_a_suite_that_searches(
    sweep: Callable[..., Any], trains: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + SEARCH)
    found = [json.loads(sweep("--limit", "1", "--json").out) for _ in range(4)]
    assert [(result["label"], result["cell"]["seed"]) for (result,) in found] == [
        ("deltanet", 0), ("deltanet", 1), ("linear_attention", 0), ("linear_attention", 1),
    ]  # fmt: skip
    assert {(cell.purpose, cell.protocol.lr) for cell in trains if cell.purpose == "report"} == {
        ("report", 1e-3)
    }
    assert len(trains) == 2 * (5 + 2) + 4
    assert "every cell is finished" in sweep("--limit", "1").err


def test_a_dry_run_counts_the_search_and_knows_when_it_is_finished(
    sweep: Callable[..., Any], trains: list[Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + SEARCH.replace("0}", "2}"))
    planned = sweep("--dry-run").out.splitlines()
    assert planned == snapshot
    alone = sweep("--dry-run", "--stack", "1").out.splitlines()
    assert alone[:2] == planned[:2]  # one line for all rates, though each is a group
    assert alone[-2] == snapshot
    sweep("--limit", "1")
    told = json.loads(sweep("--dry-run", "--json").out)["groups"]
    assert [group["left"] for group in told] == [0, 5, 1, 2]
    assert told[1]["seconds"] == pytest.approx(5 / 2 * told[3]["seconds"])
    sweep()
    assert sweep("--dry-run").out.splitlines()[-1] == snapshot


def test_what_a_former_rule_chose_in_this_folder_stands_and_is_told(
    sweep: Callable[..., Any], trains: list[Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    suite = tmp_path / "tiny.yaml"
    suite.write_text(TINY + "search: {seeds: [1000], ties: upper, refine: false}\n")
    first = json.loads(sweep("--json").out)
    ran = len(trains)
    suite.write_text(TINY + "search: true\n")
    again = sweep("--json")
    assert len(trains) == ran
    assert next(line for line in again.err.splitlines() if "4 stored results" in line) == snapshot
    assert [result["marks"] for result in json.loads(again.out)] == [
        [*result["marks"], "lr_one_seed"] for result in first
    ]
    assert sweep("--dry-run").out.splitlines()[-1] == snapshot
    assert "every cell is finished" in sweep("--limit", "1").err
    assert "lr_one_seed" in sweep().out
    sweep("--seeds", "0-2", "--only", "deltanet")
    more = [(cell.purpose, cell.seed) for cell in trains[ran:]]
    assert sorted(more) == [
        ("report", 2),
        *[("tuning", 1000)] * 2,
        *[("tuning", 1001)] * 7,
        *[("tuning", 1002)] * 7,
    ], "a seed more is chosen for as asked, on three seeds and refined, which finds the same rate here"


@pytest.mark.slow
def test_a_dry_run_counts_what_is_to_be_tried_again(
    sweep: Callable[..., Any], trains: Any, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    def left(*words: str) -> list[int]:
        return [group["left"] for group in json.loads(sweep("--dry-run", "--json", *words).out)["groups"]]

    trains.statuses = {"deltanet": "failed"}
    sweep()
    assert (left(), left("--retry", "failed"), left("--retry", "failed", "--limit", "1")) == (
        [0, 0],
        [2, 0],
        [1],
    )
    (tmp_path / "tiny.yaml").write_text(TINY + SEARCH)
    assert next(line for line in sweep().err.splitlines() if "learning rate" in line) == snapshot
    assert (left(), left("--retry", "failed")) == ([0, 0, 0, 0], [5, 0, 2, 0])


def test_a_dry_run_refuses_what_a_run_would(
    sweep: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + SEARCH.replace("100", "1"))
    ended = sweep("--dry-run")
    assert ended.code == 2
    assert ended.err == snapshot


@pytest.mark.slow
def test_what_failed_is_tried_again_only_when_asked(
    sweep: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Module):\n    def forward(self, x):\n        raise"
        " RuntimeError('no')\n"
    )
    (tmp_path / "tiny.yaml").write_text(TINY.replace("linear_attention", "'./mine.py:Mine'"))
    ended = sweep()
    assert ended.code == 3
    assert next(line for line in ended.err.splitlines() if "2 of 4" in line) == snapshot
    assert sweep().err.count("finished earlier") == 4
    assert sweep("--retry", "failed").err.count("finished earlier") == 2


def test_what_is_not_installed_is_left_out_and_told(
    sweep: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY.replace("linear_attention", "no_such_model"))
    ended = sweep("--dry-run")
    assert ended.code == 0
    assert ended.err.partition(" Allowed: ")[0] == snapshot
    assert ended.out == snapshot


@pytest.mark.parametrize(
    "words",
    ["--shard 3/2", "--shard x", "--gpus 0.25", "--executor ray", "--retry all", "--only delta"],
)
def test_bad_input_is_one_sentence(
    sweep: Callable[..., Any], words: str, snapshot: SnapshotAssertion
) -> None:
    ended = sweep(*words.split())
    assert ended.code == 2
    assert ended.err == snapshot


def test_suites_are_listed(linbench: Callable[..., Any]) -> None:
    names = [line.partition("\t")[0] for line in linbench("list", "suites").out.splitlines()]
    assert names == sorted(names)
    assert {"based-figure2", "quick", "zoology-figure2"} <= set(names)
    assert [
        suite["name"] for suite in json.loads(linbench("list", "suites", "--json").out)["suites"]
    ] == names


MIXTURE = """
  - task: mqar
    train: [{seq_len: 8, examples: 10}, {kv_pairs: 4, examples: 18}]
    test: [{}, {seq_len: 32, kv_pairs: 4}]
    set: {protocol.epochs: 3}
"""


@pytest.mark.slow
def test_a_mixture_runs_and_its_table_is_right(
    sweep: Callable[..., Any], linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY.replace("tasks: [mqar]", f"tasks:{MIXTURE}"))
    ended = sweep("--json")
    assert ended.code == 0, ended.err
    found = {
        name: [r for r in json.loads(ended.out) if r["label"] == name]
        for name in ("deltanet", "linear_attention")
    }
    assert all(
        result["curve"][-1]["tokens"] == 3 * (3 * 4 * 8 + 5 * 4 * 16)
        for results in found.values()
        for result in results
    )
    shown, *_ = json.loads(linbench("table", "--json").out)
    for row in shown["rows"]:
        results = found[row["model"]]
        assert row["accuracy"] == pytest.approx(sum(r["metrics"]["accuracy"] for r in results) / 2)
        each = [sum(r["tests"][i]["metrics"]["accuracy"] for r in results) / 2 for i in range(2)]
        of_tests = {one["test"]: one["accuracy"] for one in shown["tests"] if one["model"] == row["model"]}
        names = [f"kv_pairs {pairs} / seq_len {length}" for pairs, length in ((2, 16), (4, 32))]
        assert of_tests == pytest.approx(dict(zip(names, each, strict=True)))
    text = linbench("table").out
    assert "By test:\n\n| model " in text
    caption = next(line for line in text.splitlines() if "trained on" in line)
    assert caption.partition("; training: ")[0] == snapshot
    assert linbench("figures").code == 0
    assert sweep("--dry-run").out.splitlines()[-1] == snapshot


@pytest.mark.slow
def test_the_shipped_mixture_is_planned(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = linbench(
        "sweep", "based-figure2", "--dry-run", "--only", "base_conv+linear_attention", "--device", "cpu"
    )
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == snapshot


@pytest.mark.slow
def test_workers_run_a_suite_side_by_side(sweep: Callable[..., Any]) -> None:
    ended = sweep("--workers", "2")
    assert ended.code == 0, ended.err
    assert len(lines(ended.err)) == 4
    assert sweep().out == ended.out


def test_a_plan_of_ladders_says_that_they_may_go_on(
    sweep: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ladder = "  protocol.schedule: wsd\n  protocol.rungs: 3\n"
    (tmp_path / "tiny.yaml").write_text(TINY.replace("set:\n", f"set:\n{ladder}", 1))
    assert sweep("--dry-run").out.splitlines()[-1] == snapshot

"""`linbench gate`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.results.store import Store
from tests.helpers.records import a_point
from tests.helpers.speeds import a_speed


@pytest.fixture
def store(a_result: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """A folder with six seeds of DeltaNet about a score, and the seconds that a call takes."""

    def keep(name: str, score: float, seconds: float = 0.0, **more: Any) -> Path:
        folder = Store(tmp_path / name)
        folder.prepare()
        for seed in range(6):
            result = a_result(seed=seed, score=score + seed / 100, curve=[a_point(score)], **more)
            folder.put(result | {"id": digest(result["id"]), "schema": SCHEMA})
        speed = a_speed(
            seconds=seconds,
            environment={
                "device": {"name": "a CPU"},
                "threads": 2,
                "packages": {},
                "commit": None,
                "dirty": None,
            },
        )
        for result in [speed] if seconds else []:
            folder.put(result | {"id": digest(result["id"]), "schema": SCHEMA})
        return folder.folder

    return keep


@pytest.fixture
def gate(linbench: Callable[..., Any]) -> Callable[..., Any]:
    return lambda baseline, candidate, *words: linbench(
        "gate", "--baseline", baseline, "--candidate", candidate, *words
    )


def test_a_baseline_alone_says_what_it_could_show(
    linbench: Callable[..., Any], store: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    base = store("base", 0.8)
    ended = linbench("gate", "--baseline", base)
    assert (ended.code, ended.out, ended.err) == (0, snapshot, "")
    (cell,) = json.loads(linbench("gate", "--baseline", base, "--json").out)["cells"]
    assert 0.05 < cell["would_show"] < 0.07
    assert linbench("gate", "--baseline", base, "--format", "markdown").out.count("|") > 10


@pytest.mark.parametrize("words", [(), ("--candidate", "head")], ids=["a baseline alone", "a candidate"])
def test_a_file_takes_all_of_it_whatever_is_printed(
    linbench: Callable[..., Any],
    store: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    store("base", 0.8)
    store("head", 0.7)
    monkeypatch.chdir(tmp_path)
    asked = ("gate", "--baseline", "base", *words)
    whole, plain = (linbench(*asked, "--format", name) for name in ("markdown", "comment"))
    saved = linbench(*asked, "--format", "comment", "--save", "gate.md")
    assert saved == plain
    assert Path("gate.md").read_text(encoding="utf-8") == whole.out
    refused = linbench(*asked, "--save", "nowhere/gate.md")
    assert (refused.code, refused.out, refused.err.count("\n")) == (6, "", 1)
    assert "--save" in refused.err


def test_a_baseline_that_can_show_nothing_says_so(
    linbench: Callable[..., Any], store: Callable[..., Path], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("seeds: 7")
    assert linbench("gate", "--baseline", store("base", 0.8), "--policy", policy).code == 5


def test_what_is_no_worse_is_let_pass(
    gate: Callable[..., Any], store: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    ended = gate(store("base", 0.8), store("head", 0.79))
    assert ended.code == 0
    assert ended.err == snapshot
    head, row = ended.out.splitlines()
    assert head.split()[:4] == ["cell", "baseline", "candidate", "difference"]
    assert row.split()[:6] == ["mqar", "quick", "native,", "deltanet", "0.825", "0.815"]


def test_a_regression_has_a_code_and_a_sentence(
    gate: Callable[..., Any], store: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    ended = gate(store("base", 0.8), store("head", 0.6))
    assert ended.code == 4
    assert ended.err == snapshot
    assert ended.out.splitlines()[1].split()[-2:] == ["<0.001", "RED"]


def test_what_cannot_be_compared_has_another(
    gate: Callable[..., Any], store: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    ended = gate(store("base", 0.8), store("head", 0.8, heads=4))
    assert ended.code == 5
    assert ended.err == snapshot


def test_markdown_says_it_all(
    gate: Callable[..., Any], store: Callable[..., Path], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "gate.yaml").write_text("bimodal: [{task: mqar, model: deltanet, learnt: 0.75}]")
    ended = gate(store("base", 0.8), store("head", 0.6), "--policy", "gate.yaml", "--format", "markdown")
    assert ended.code == 4
    assert ended.out == snapshot


def test_json_says_it_all(gate: Callable[..., Any], store: Callable[..., Path]) -> None:
    told = json.loads(gate(store("base", 0.8), store("head", 0.6), "--json").out)
    (cell,) = told["cells"]
    assert told["exit_code"] == 4
    assert told["policy"] == {
        "drop": 0.02,
        "alpha": 0.01,
        "correction": "holm",
        "seeds": 6,
        "bimodal": [],
        "slower": None,
        "may_differ": [],
    }
    assert cell["red"] is True
    assert cell["baseline"] == pytest.approx([0.8, 0.81, 0.82, 0.83, 0.84, 0.85])
    assert cell["difference"] == pytest.approx(-0.2)


def test_speeds_are_shown_and_gated_where_the_policy_says_so(
    gate: Callable[..., Any], store: Callable[..., Path], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    folders = store("base", 0.8, seconds=1.0), store("head", 0.8, seconds=2.0)
    ended = gate(*folders)
    assert ended.code == 0
    assert ended.err == snapshot
    assert ended.out.splitlines()[2].split() == [
        "speed",
        "baseline",
        "candidate",
        "times",
        "as",
        "long",
        "verdict",
        "marks",
    ]
    assert ended.out.splitlines()[3].split()[-4:] == ["2.00", "[1.64,", "2.44]", "slower"]
    (tmp_path / "gate.yaml").write_text("slower: 1.5")
    ended = gate(*folders, "--policy", "gate.yaml", "--format", "markdown")
    assert ended.code == 4
    assert "| RED " in ended.out
    assert ended.err == snapshot


def test_an_unreadable_file_of_a_baseline_stays_as_it_is_and_is_named_every_time(
    gate: Callable[..., Any], store: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    base = store("base", 0.8)
    torn = min(base.glob("*.json"))
    torn.write_text("{")
    before = sorted(base.iterdir())
    for _ in range(2):
        ended = gate(base, store("head", 0.8))
        assert ended.err.splitlines()[0].replace(str(torn), "FILE") == snapshot(name="ignored")
    assert (sorted(base.iterdir()), torn.read_text()) == (before, "{")


def test_a_baseline_of_which_a_cell_is_unreadable_lets_nothing_pass(
    gate: Callable[..., Any], store: Callable[..., Path], snapshot: SnapshotAssertion
) -> None:
    base, head = store("base", 0.8), store("head", 0.6)
    unreadable = sorted(base.glob("*.json"))
    for path in unreadable:
        path.write_text("{")
    store("base", 0.8, heads=4)
    store("head", 0.8, heads=4)
    ended = gate(base, head, "--json")
    assert ended.code == 5
    problems = json.loads(ended.out)["problems"]
    assert sorted(said.partition(" ")[0] for said in problems) == [path.name for path in unreadable]
    assert {said.partition(" ")[2] for said in problems} == snapshot


def test_bad_input_is_one_sentence(
    gate: Callable[..., Any], store: Callable[..., Path], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ended = gate(store("base", 0.8), "nowhere")
    assert ended.code == 6
    assert ended.err == snapshot
    (tmp_path / "gate.yaml").write_text("seed: 3")
    ended = gate("base", "base", "--policy", "gate.yaml")
    assert ended.code == 2
    assert ended.err == snapshot
    ended = gate("base", "base", "--policy", "none.yaml")
    assert ended.code == 2
    assert ended.err == snapshot

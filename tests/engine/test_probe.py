"""Layers that are not shipped are probed before they are trained, and what breaks a law is refused, or marked
wherever it is shown."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from linbench.api import run
from linbench.common.errors import UserError
from linbench.common.laws import Law, parse_laws
from linbench.engine.probe import Marks, Probe, examine
from linbench.experiments.cell import Cell
from linbench.experiments.suite import Suite, blocks
from linbench.report.figures import comparison_figures
from linbench.report.figures.learning_curves import FIGURE
from linbench.report.tables.comparison import table as comparison_table
from linbench.report.tables.overview import overviews
from linbench.report.tables.side_by_side import table as table_beside
from linbench.results.comparison import comparisons
from linbench.results.gate import gate
from linbench.results.gate_policy import Policy
from linbench.results.record import NO_VERDICT, UNLAWFUL
from linbench.results.side_by_side import compare_variants
from linbench.results.store import Store
from tests.helpers.cells import plan
from tests.helpers.lawless_layers import LAYERS


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Cell]:
    (tmp_path / "layers.py").write_text(LAYERS)

    def make(model: str, length: int = 32, **settings: Any) -> Cell:
        name = f"{tmp_path}/layers.py:{model}" if ":" not in model else model
        small = {"task.seq_len": length, "task.kv_pairs": 4, "task.vocab_size": 64, "model.d_model": 16}
        return plan("mqar", [name], settings={**small, **settings}, device="cpu")[0]

    return make


def seen(cell: Cell, *lengths: int) -> list[tuple[str | None, str]]:
    found = examine(Probe(cell, 0, lengths or (32,)))
    assert found.trouble is None
    return [(breach.law and breach.law.value, breach.seen) for breach in found.breaches]


ENCODER = "torch.nn:TransformerEncoderLayer[nhead=2,dim_feedforward=32,dropout=0.1"


@pytest.mark.parametrize(("model", "laws", "where"), [
    ("Same", ["non-causal"], "with the tokens from 16 of 32 on replaced, its output at token 15 moves by "),
    ("SilentAtFirst", ["non-causal"], "token 15"),
    ("Faint", ["non-causal"], "token 15"),
    (f"{ENCODER}]", ["non-causal"], "from 16 of 32"),
    (f"{ENCODER},batch_first=false]", ["batch-mixing"], "other rows"),
    ("RowsFirst", ["batch-mixing"], "a row of 32 tokens gives other outputs alone than in a batch of 3"),
    ("Batched", ["batch-mixing"], "other rows"),
    ("Normed", ["non-causal", "batch-mixing"], ", in training"),
    ("Draws", ["nondeterministic"], "two calls with the same 32 tokens"),
    ("Counts", ["nondeterministic"], "two calls"),
    ("Rolls[heads=2]", ["nondeterministic"], "two calls"),
    ("LeaksBehind[heads=2]", ["non-causal"], "second layer"),
    ("LeaksFloat", ["non-causal"], "token"),
    ("Overflowing", [None], "not all of its outputs are finite"),
    ("Short[heads=2]", [None], "gives [3, 1, 16]"),
])  # fmt: skip
def test_each_law_that_is_broken_is_seen(
    planned: Callable[..., Cell], model: str, laws: list[str | None], where: str
) -> None:
    found = seen(planned(model))
    assert [law for law, _ in found] == laws
    assert where in found[0][1]


@pytest.mark.parametrize(
    "model",
    [
        "TokensFirst",
        "OwnNorm",
        "Centred",
        "Skips",
        "Plain",
        "Convolves",
        "NormsInFloat",
        "OnlyFloat",
        "InHalf",
        "Unused",
    ],
)
def test_what_keeps_the_laws_is_not_blamed(planned: Callable[..., Cell], model: str) -> None:
    assert seen(planned(model)) == []


def test_it_is_probed_at_the_lengths_of_its_cell(planned: Callable[..., Cell]) -> None:
    assert seen(planned("LeaksLate[heads=2]"), 32, 128) == []
    ((law, where),) = seen(planned("LeaksLate[heads=2]"), 32, 256)
    assert law == "non-causal"
    assert "of 256 on" in where


def test_what_only_a_cells_precision_takes_is_probed_in_it(
    planned: Callable[..., Cell], tmp_path: Path
) -> None:
    text = (
        "\n\nclass OnlyAutocast(Same):\n    def forward(self, x):\n        assert"
        " torch.is_autocast_enabled('cpu')\n        return super().forward(x)\n"
    )
    cell = planned("Same")
    (tmp_path / "layers.py").write_text(LAYERS + text)
    cell = planned("OnlyAutocast", **{"protocol.precision": "bf16"})
    assert [law for law, _ in seen(cell)] == ["non-causal"]


def probed(cells: Sequence[Cell], *allow: str) -> Marks:
    marks = Marks(parse_laws(allow))
    marks.probe(cells)
    return marks


def test_a_law_may_be_written_with_either_sign() -> None:
    assert parse_laws(["non_causal", "batch-mixing"]) == {Law.non_causal, Law.batch_mixing}


def test_a_constructor_that_draws_from_a_generator_of_its_own_is_nondeterministic_and_nothing_else(
    planned: Callable[..., Cell], snapshot: SnapshotAssertion
) -> None:
    ((law, words),) = seen(planned("Built"))
    assert law == "nondeterministic"
    assert words.partition(": ")[2] == snapshot


@pytest.mark.slow
def test_a_refusal_says_which_law_how_it_was_seen_and_what_to_do(
    planned: Callable[..., Cell], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        probed([planned("Same"), planned("TokensFirst"), planned("Normed")])
    said = str(refused.value).replace(str(tmp_path), "FOLDER")
    assert re.sub(r"(at token|moves by) [\d.]+", r"\1 N", said).split(". ") == snapshot
    assert "TokensFirst" not in said
    with pytest.raises(UserError, match=r"Normed is batch-mixing"):
        probed([planned("Normed")], "non-causal")
    with pytest.raises(UserError, match=r"Overflowing cannot be trained: not all of its outputs are finite"):
        probed([planned("Overflowing")], *Law)
    with pytest.raises(UserError, match=r"unknown law .* 'causal'; did you mean 'non-causal'"):
        probed([], "causal")


@pytest.mark.slow
def test_only_what_is_broken_is_marked_and_ids_are_as_they_were(planned: Callable[..., Cell]) -> None:
    same, sound = planned("Same"), planned("TokensFirst")
    marks = probed([same, sound], "non-causal", "batch-mixing")
    assert marks.on({"id": same.id, "marks": ["undertrained"], "status": "ok"})["marks"] == [
        "undertrained",
        "non-causal",
    ]
    assert marks.on({"id": sound.id, "marks": [], "status": "ok"})["marks"] == []


def test_each_layer_is_probed_once_whatever_the_seed_and_the_rate(
    planned: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def none(function: object, probes: Sequence[Probe], **more: object) -> Any:
        asked.append(len(probes))
        return iter(())

    monkeypatch.setattr("linbench.engine.probe.outcomes", none)
    monkeypatch.setattr("linbench.engine.probe._known", {})
    cells = [planned("TokensFirst", **{"protocol.lr": lr}) for lr in (1e-3, 1e-2)]
    with pytest.raises(KeyError):  # nothing is found out here
        probed(cells)
    assert asked == [1]


@pytest.mark.slow
@pytest.mark.nightly
def test_what_dies_or_hangs_is_not_refused_but_marked_where_it_scores(
    planned: Callable[..., Cell],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setattr("linbench.engine.probe.SECONDS", 8.0)
    cells = [planned("Dies"), planned("Hangs"), planned("Raises")]
    marks = probed(cells)
    told = capsys.readouterr().err.replace(str(tmp_path), "FOLDER").splitlines()
    assert [line for line in told if "Dies" in line or "Hangs" in line] == snapshot
    assert [line.endswith("ValueError: no such luck.") for line in told if "Raises" in line] == [True]
    for cell in cells:
        assert marks.on({"id": cell.id, "marks": [], "status": "ok"})["marks"] == ["unprobed"]
        assert marks.on({"id": cell.id, "marks": [], "status": "failed"})["marks"] == []


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_run_refuses_trains_nothing_and_with_allow_marks_what_it_trains(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    Path("layers.py").write_text(LAYERS)
    words = ["run", "mqar", "--model", "layers.py:Same,deltanet", *tiny]
    ended = linbench(*words)
    assert (ended.code, ended.out) == (2, "")
    assert "layers.py:Same is non-causal" in ended.err
    assert Store("results").all() == []
    ended = linbench(*words, "--allow", "non-causal", "--json")
    assert ended.code == 0
    assert [result["marks"] for result in json.loads(ended.out)] == [["non-causal"], []]
    ended = linbench(*words)
    assert (ended.code, ended.err.count("finished earlier")) == (0, 2), "what is stored needs no probe"
    assert "layers.py:Same (non-causal)" in ended.out
    assert linbench(*words, "--again").code == 2
    assert linbench(*words, "--allow", "non-casual").code == 2
    with pytest.raises(UserError, match="is non-causal"):
        run("mqar", "layers.py:Same", settings={"model.d_model": 16}, seeds=7, device="cpu")


@pytest.mark.slow
def test_a_search_refuses_before_others_are_trained(linbench: Callable[..., Any], tiny: list[str]) -> None:
    Path("layers.py").write_text(LAYERS)
    suite = {
        "about": "a test",
        "tasks": ["mqar"],
        "models": ["deltanet", "./layers.py:Same"],
        "seeds": "0-1",
        "search": {},
    }
    suite["set"] = dict(word.split("=") for word in tiny if "=" in word)
    Path("suite.yaml").write_text(json.dumps(suite))
    for verb in (
        ["sweep", "suite.yaml"],
        ["compare", "deltanet", "./layers.py:Same", "--suite", "suite.yaml"],
    ):
        ended = linbench(*verb, "--device", "cpu", "--workers", "0", "--results", "kept")
        assert (ended.code, ended.out) == (2, "")
        assert "linbench: ./layers.py:Same is non-causal" in ended.err
        assert not Path("kept").exists()


def unlawful(a_result: Callable[..., Any], mark: str = "non-causal") -> list[Any]:
    return [a_result("mine", seed, 0.9, marks=[mark]) for seed in range(3)] + [
        a_result("deltanet", seed, 0.5) for seed in range(3)
    ]


@pytest.mark.parametrize("mark", UNLAWFUL)
def test_marks_of_laws_stand_in_every_table_and_caption_and_in_no_verdict(
    a_result: Callable[..., Any], mark: str, snapshot: SnapshotAssertion
) -> None:
    assert mark in NO_VERDICT
    (one,) = comparisons(unlawful(a_result, mark), order=["mine", "deltanet"])
    assert [row.label for row in one.rows] == [f"mine ({mark})", "deltanet"]
    assert {result["label"] for result in one.rows[0].results} == {f"mine ({mark})"}, (
        "by which figures name models"
    )
    assert not one.rows[0].eligible
    assert f"mine ({mark})" in comparison_table(one).to_markdown()
    said = set()
    for figure in comparison_figures():
        (sentence,) = (each for each in figure.caption_of(one).split(". ") if "mine" in each)
        said.add(sentence)
    assert said == snapshot
    other = [
        {
            **result,
            "id": f"other {result['id']}",
            "cell": {**result["cell"], "task": {**result["cell"]["task"], "name": "copy"}},
        }
        for result in one.results
    ]
    (table,) = overviews(comparisons([*unlawful(a_result, mark), *other]))
    assert f"mine ({mark})" in set(table.frame["model"])
    (again,) = comparisons(one.results, order=[f"mine ({mark})"])
    assert again.rows[0].label == f"mine ({mark})", "it is said once"


@pytest.mark.parametrize(
    ("mark", "foot"),
    [("non-causal", "or as its name says"), ("lr_edge", "or its learning rate in doubt")],
)
def test_the_foot_of_a_figure_says_what_is_hollow(a_result: Callable[..., Any], mark: str, foot: str) -> None:
    curve = [{"step": step, "tokens": 100 * step, "loss": 1.0, "accuracy": 0.5} for step in (1, 2)]
    (one,) = comparisons([{**result, "curve": curve} for result in unlawful(a_result, mark)])
    figure = Figure(layout="constrained")
    assert FIGURE.draw_on(figure, one)
    assert figure.get_supxlabel().endswith(foot)
    assert (f"mine ({mark})" in {text.get_text() for text in figure.axes[0].texts}) == (mark == "non-causal")


def test_a_caption_says_nothing_of_laws_where_none_is_broken(a_result: Callable[..., Any]) -> None:
    (one,) = comparisons([a_result("deltanet", seed, 0.5) for seed in range(3)])
    assert "law" not in FIGURE.caption_of(one)


def test_compare_gives_no_verdict(a_result: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    tiny = {
        "task.seq_len": 16,
        "task.kv_pairs": 2,
        "task.vocab_size": 16,
        "model.d_model": 16,
        "model.heads": 2,
        "model.layers": 1,
    }
    suite = Suite.parse(
        {"about": "a test", "tasks": ["mqar"], "models": ["deltanet", "gla"], "seeds": "0-2", "set": tiny},
        where="suite",
    )
    found, _ = blocks(suite, device="cpu")
    results = {}
    for cell in (cell for block in found for _, cells in block.rows for cell in cells):
        label = cell.model.label
        result = a_result(label, cell.seed, 0.9, marks=["non-causal"] if label == "gla" else [])
        results[cell.id] = result | {"cell": cell.identity, "preset": cell.preset}
    (table,) = compare_variants(found, results, [])
    assert (table.lines[1].verdict, table.lines[1].obstacle) == (None, "gla (non-causal)")
    assert "gla (non-causal)" in table_beside(table).texts[1]
    assert table_beside(table).caption.split(". ")[-1] == snapshot


@pytest.mark.parametrize(
    ("before", "after"),
    [([], ["non-causal"]), (["non-causal"], [])],
    ids=["in the candidate", "in the baseline"],
)
def test_a_gate_cannot_compare_what_breaks_a_law(
    a_result: Callable[..., Any], before: list[str], after: list[str], snapshot: SnapshotAssertion
) -> None:
    sides = [
        [a_result("mine", seed, score, marks=marks) for seed in range(6)]
        for score, marks in ((0.9, before), (0.1, after))
    ]
    found = gate(*sides, Policy.parse({}, where="policy"))
    assert (found.exit_code, found.rows) == (5, ())
    (sentence,) = found.problems
    assert sentence == snapshot

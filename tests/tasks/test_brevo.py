from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Split
from linbench.tasks.brevo import Brevo
from tests.helpers.tasks import assert_refused, build_task, sample, solved, task_fixture

SETTINGS: dict[str, dict[str, Any]] = {
    "quick": dict(Brevo.presets["quick"].task),
    "packed": {"seq_len": 120, "nodes": 5, "letters": 4, "longest": 2, "query": "quarter", "pack": True},
    "long names": {"seq_len": 512, "nodes": 9, "letters": 2, "shortest": 2, "longest": 5},
    "packed tokens": {"seq_len": 100, "nodes": 7, "letters": 7, "pack": True},
}
Name = tuple[int, ...]


build = partial(build_task, Brevo)


task = task_fixture(Brevo, SETTINGS)


def words(task: Brevo, tokens: list[int]) -> list[tuple[int, Name]]:
    """Split a row into its words, each with its position, without the task's own reader."""
    last = 5 + task.settings.letters * (task.settings.longest > 1)
    found: list[tuple[int, Name]] = []
    for at, token in enumerate(tokens):
        if found and 5 <= found[-1][1][-1] < last and token >= 5:
            found[-1] = (found[-1][0], (*found[-1][1], token))
        else:
            found.append((at, (token,)))
    return found


def instances(task: Brevo, tokens: list[int]) -> list[dict[str, Any]]:
    """Edges, query and answer of every instance whose `END` is in the row."""
    found: list[dict[str, Any]] = []
    now: list[tuple[int, Name]] = []
    for at, word in words(task, tokens):
        if word == (1,):
            now = []
        elif word == (4,):
            text = [one for _, one in now]
            if (3,) not in text:
                continue  # cut off before its answer, or padding
            asks, answers = text.index((2,)), text.index((3,))
            parents: dict[Name, set[Name]] = {}
            for parent, child in zip(text[:asks:2], text[1:asks:2], strict=True):
                parents.setdefault(child, set()).add(parent)
            found.append(
                {
                    "parents": parents,
                    "query": text[asks + 1],
                    "said": now[answers + 1 :],
                    "end": at,
                    "edges": asks // 2,
                }
            )
            now = []
        elif word != (0,):
            now.append((at, word))
    return found


def needed(parents: dict[Name, set[Name]], node: Name) -> set[Name]:
    return {node}.union(*(needed(parents, parent) for parent in parents.get(node, ())))


@pytest.mark.parametrize("split", ["train", "test"])
def test_structure(task: Brevo, split: Split) -> None:
    """Every answer is all that the query depends on, in order, and due token by token up to END."""
    s = task.settings
    batch = sample(task, 30, split)
    for row in range(30):
        due: list[list[int]] = []
        lengths: list[int] = []
        for one in instances(task, [*batch.inputs[row].tolist(), 4]):
            parents, said = one["parents"], [word for _, word in one["said"]]
            if one["end"] == s.seq_len and set(said) != needed(parents, one["query"]):
                continue  # cut off, and the END that was appended is not its own
            nodes = set(parents).union(*parents.values())
            assert len(nodes) <= s.nodes
            assert all(len(x) <= 4 for x in parents.values())
            assert sum(map(len, parents.values())) == one["edges"]
            assert said[-1] == one["query"]
            assert set(said) == needed(parents, one["query"])
            assert len(set(said)) == len(said)
            assert all(parents.get(node, set()) <= set(said[:step]) for step, node in enumerate(said))
            labels = [
                [at + place - 1, token, step, len(said)]
                for step, (at, word) in enumerate([*one["said"], (one["end"], (4,))])
                for place, token in enumerate(word)
            ]
            due += labels
            lengths += [len(labels)] + [0] * (len(labels) - 1)
        used = batch.is_answer[row]
        found = [batch.positions, batch.targets, batch.slices["step"], batch.slices["size"]]
        assert torch.stack([x[row][used] for x in found], dim=1).tolist() == due
        assert batch.facts["length"][row][used].tolist() == lengths
    assert task.io == IO(*[5 + s.letters * (1 + (s.longest > 1))] * 2)


def test_what_is_admissible_is_what_can_be_said(task: Brevo) -> None:
    """All tokens at all places, against the names that go on with what was said."""
    batch = sample(task, 6, "test")
    scored = [
        task.means(
            batch, Prediction(torch.full_like(batch.targets, token), torch.zeros(batch.targets.shape))
        )["accuracy"].value
        for token in range(task.io.vocab_out or 0)
    ]
    admitted = torch.stack(scored, dim=2) & batch.is_answer[:, :, None]
    checked = 0
    for row in range(6):
        tokens = batch.inputs[row].tolist()
        places = dict(zip(batch.positions[row].tolist(), admitted[row].tolist(), strict=True))
        for one in instances(task, tokens):
            parents, said = one["parents"], [word for _, word in one["said"]]
            whole = needed(parents, one["query"])
            for step, (at, word) in enumerate([*one["said"], (one["end"], (4,))]):
                before = set(said[:step])
                can = [node for node in whole - before if parents.get(node, set()) <= before] or [(4,)]
                for place in range(len(word)):
                    fits = {node[place] for node in can if node[:place] == word[:place]}
                    assert {token for token, yes in enumerate(places[at + place - 1]) if yes} == fits
                    checked += 1
    assert checked > 30


def test_a_hand_made_row() -> None:
    """a and b under c, c and d under e; e is asked for."""
    task = build()
    a, b, c, d, e = range(5, 10)
    tokens = [1, c, e, a, c, d, e, b, c, 2, e, 3, b, d, a, c, e, 4]
    batch = Batch(
        torch.tensor([tokens + [0] * 46]),
        torch.tensor([[11, 12, 13, 14, 15, 16, 0, 0, 0]]),
        torch.tensor([[b, d, a, c, e, 4, IGNORE, IGNORE, IGNORE]]),
        {},
    )
    assert task.solve(batch)[0, :6].tolist() == [a, a, a, c, e, 4]
    assert "8" in task.explain(batch, 0)


def test_other_orders_are_right_too(task: Brevo) -> None:
    """The solver differs from what is drawn and yet all of its answers are admissible, and exact."""
    batch = sample(task, 50, "test")
    prediction = solved(task, batch)
    assert (prediction.answers != batch.targets)[batch.is_answer].any()
    score = task.score(batch, prediction)
    for name in ("accuracy", "exact"):
        assert score[name][0] == score[name][1] > 0
    assert score["exact"][1] == (batch.facts["length"] > 0).sum()


def test_an_answer_is_exact_only_if_all_of_it_is_admissible() -> None:
    task = build(**SETTINGS["packed"])
    batch = sample(task, 20, "test")
    begins = batch.facts["length"] > 0
    wrong = batch.targets.where(~begins | (torch.arange(20)[:, None] < 10), 0)
    score = task.score(batch, Prediction(wrong, torch.zeros(wrong.shape)))
    assert score["exact"][0] == begins[:10].sum()
    assert score["exact"][1] == begins.sum()
    assert score["accuracy"][1] - score["accuracy"][0] == begins[10:].sum()


def test_the_query_of_the_last_quarter_may_have_children() -> None:
    """Or be no part of what another node depends on; the last node is nobody's parent."""
    for query, some in (("last", False), ("quarter", True)):
        task = build(query=query)
        found = [
            any(one["query"] in parents for parents in one["parents"].values())
            for tokens in sample(task, 100, "test").inputs.tolist()
            for one in instances(task, tokens)
        ]
        assert any(found) == some


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "tokens", "most"), [("brevo1-70", 335, 532), ("brevo1-110", 522, 700), ("brevo2-50", 765, 1100)]
)
def test_instances_are_as_long_as_the_published_ones(which: str, tokens: int, most: int) -> None:
    """Means within four standard errors of our own draws and of some hundred of theirs."""
    task = build(**Brevo.presets[which].task)
    begins = (sample(task, 100, "test").inputs == 1).nonzero()
    first = begins[:-1, 1] == 0
    lengths = (begins[1:, 1] - begins[:-1, 1])[first & (begins[1:, 0] == begins[:-1, 0])].double()
    assert len(lengths) == 100
    error = float(lengths.std()) / len(lengths) ** 0.5
    assert float(lengths.mean()) == pytest.approx(tokens, abs=4 * error + 0.01 * tokens)
    assert lengths.max() <= most


def test_longer_rows_have_more_nodes() -> None:
    task = build(**build().longer(2))
    assert (task.seq_len, task.settings.nodes) == (128, 13)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"nodes": 33, "seq_len": 500}, "33 32 letters"),
        ({"nodes": 9}, "9 66 seq_len 64"),
        ({"nodes": 9, "pack": True}, "9 66 seq_len 64"),
        ({"letters": 5, "longest": 2, "pack": True}, "8 83.5 1.5 seq_len 64"),
        ({"nodes": 2}, "nodes 2 3"),
        ({"query": "first"}, "query"),
        ({"shortest": 2}, "shortest longest 2 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Brevo, values, facts)


def test_explain_tells_edges_and_the_answer(task: Brevo) -> None:
    batch = sample(task, 4, "test")
    for row in range(4):
        text = task.explain(batch, row)
        one = instances(task, batch.inputs[row].tolist())[0]
        assert f"From position {int(batch.positions[row, 0])} on" in text
        assert f", {' '.join(map(str, one['query']))}; then token 4" in text


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ([5, 6, 7, 8, 4], True),
        ([6, 5, 7, 8, 4], True),
        ([5, 7, 6, 8, 4], False),  # 6 is a parent of 7
        ([5, 6, 7, 7, 8, 4], False),
        ([5, 6, 7, 4], False),
        ([5, 6, 7, 8], False),
        ([5, 6, 7, 8, 9, 4], False),  # nothing needs 9
        ([4], False),
        ([1, 5, 6, 7, 8, 4], False),
    ],
)
def test_a_written_answer_is_right_if_it_is_whole_and_in_an_order(said: list[int], right: bool) -> None:
    """5 and 6 are parents of 7, and 7 of 8, for which is asked; 9 is a child of 8."""
    task = build(letters=8, seq_len=64)
    row = [1, 5, 7, 6, 7, 8, 9, 7, 8, 2, 8, 3, *said]
    written = torch.tensor([row + [0] * (64 - len(row))])
    assert task.judge(sample(task, 1), written).tolist() == [right]

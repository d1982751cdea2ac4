from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Split
from linbench.tasks.depo import Depo
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 4000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": dict(Depo.presets["quick"].task),
    "packed": {"seq_len": 100, "nodes": 6, "hops": 5, "letters": 4, "longest": 2, "pack": True},
    "long names": {"seq_len": 256, "nodes": 5, "hops": 7, "letters": 2, "shortest": 2, "longest": 5},
    "smallest": {"seq_len": 13, "nodes": 3, "hops": 1, "questions": 1, "letters": 3, "pack": True},
}
Probability = Callable[..., float]


build = partial(build_task, Depo)


task = task_fixture(Depo, SETTINGS)


def read(task: Depo, tokens: list[int]) -> list[list[Any]]:
    """Read a row by hand, without the task's own reader: for each instance its edges, and its questions with
    their answers, each as [k, q, position of ANSWER, a] as far as the row holds it."""
    s, first = task.settings, 3 + task.settings.hops
    words: list[tuple[int, list[int]]] = []
    for at, token in enumerate(tokens):
        open_name = (
            words and words[-1][1][0] >= first and s.longest > 1 and words[-1][1][-1] < first + s.letters
        )
        if token >= first and open_name:
            words[-1][1].append(token)
        else:
            words.append((at, [token]))
    instances: list[list[Any]] = []
    for at, word in words:
        if word == [1]:
            instances.append([[], []])
        elif 3 <= word[0] < first:
            instances[-1][1].append([word[0] - 2])
        elif word == [2]:
            instances[-1][1][-1].append(at)
        elif word != [0]:
            into = instances[-1][1][-1] if instances[-1][1] else instances[-1][0]
            into.append(tuple(word))
    return instances


@pytest.mark.parametrize("split", ["train", "test"])
def test_structure(task: Depo, split: Split) -> None:
    """Every answer is reached by following the edges, and every place is where its token is due."""
    s = task.settings
    batch = sample(task, 30, split)
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        due: list[tuple[int, ...]] = []
        lengths: list[int] = []
        instances = read(task, tokens)
        assert len(instances) > 1 or not s.pack
        for number, (names, questions) in enumerate(instances):
            edges = list(zip(names[::2], names[1::2], strict=False))
            whole = number < len(instances) - 1 or not s.pack
            nodes = [x for x, _ in edges]
            successor = dict(edges)
            if whole:
                assert len(set(nodes)) == len(nodes)
                assert set(nodes) == set(successor.values())
                assert len(nodes) == s.nodes if split == "test" else 3 <= len(nodes) <= s.nodes
                assert len(questions) == min(s.questions, len(nodes))
                assert len({q[1] for q in questions}) == len(questions)
            for question in questions:
                if len(question) < 3:
                    continue  # cut off before ANSWER
                k, asked, at = question[:3]
                assert 1 <= k <= s.hops
                way, node = [], asked
                for _ in range(k):
                    way.append(nodes.index(node))
                    node = successor[node]
                assert not whole or question[3] == node
                if at + len(node) > s.seq_len:
                    continue
                back = sum(b < a for a, b in pairwise(way))
                due += [(at + j, token, k, len(nodes), way[0], back) for j, token in enumerate(node)]
                lengths += [len(node)] + [0] * (len(node) - 1)
        used = batch.is_answer[row]
        found = [batch.positions, batch.targets, *(batch.slices[name] for name in task.slice_sizes())]
        assert torch.stack([x[row][used] for x in found], dim=1).tolist() == [list(one) for one in due]
        assert batch.facts["length"][row][used].tolist() == lengths
        assert not batch.facts["length"][row][~used].any()
        assert used.sum() <= task.answers
    assert task.io == IO(*[3 + s.hops + s.letters * (1 + (s.longest > 1))] * 2)


def test_a_hand_made_row() -> None:
    """c > a, a > b, b > c; two steps from a, then three from b, and one from c."""
    task = build(hops=3)
    a, b, c = 6, 7, 8
    tokens = [1, c, a, a, b, b, c, 4, a, 2, c, 5, b, 2, b, 3, c, 2, a]
    batch = Batch(
        torch.tensor([tokens + [0] * 45]),
        torch.tensor([[9, 13, 17]]),
        torch.zeros(1, 3, dtype=torch.int64),
        {},
    )
    assert task.solve(batch).tolist() == [[c, b, a]]
    assert "from 7: 7 from" in task.explain(batch, 0)


def test_cycles_and_questions_are_uniform(chi_squared: Probability) -> None:
    """Both cycles of 3 nodes, all orders of the edges, all starts and steps are equally likely."""
    task = build(nodes=3, hops=2, questions=3, letters=3)
    inputs = sample(task, N).inputs - 5
    ends = inputs[:, 1:7].view(N, 3, 2)
    order = ends[:, 0, 0] * 3 + ends[:, 1, 0]
    successor = torch.zeros(N, 3, dtype=torch.int64).scatter(1, ends[:, :, 0], ends[:, :, 1])
    both = 2 * order.unique(return_inverse=True)[1] + (successor[:, 0] == 1)
    assert chi_squared(both.bincount(minlength=12), torch.full((12,), N / 12)) > ALPHA
    asked, steps = inputs[:, 8::4][:, :3], inputs[:, 7::4][:, :3] + 2
    starts = (asked[:, 0] * 3 + asked[:, 1]).unique(return_inverse=True)[1]
    cells = starts * 8 + steps[:, 0] * 4 + steps[:, 1] * 2 + steps[:, 2]
    assert chi_squared(cells.bincount(minlength=48), torch.full((48,), N / 48)) > ALPHA


@pytest.mark.parametrize(("hops", "tested"), [(8, [1, 2, 4, 8]), (6, [1, 2, 4, 6]), (2, [1, 2])])
def test_tests_ask_for_powers_of_two_and_for_the_most(
    hops: int, tested: list[int], chi_squared: Probability
) -> None:
    task = build(hops=hops)
    trained = sample(task, 500)
    counts = trained.slices["hops"][trained.is_answer].bincount(minlength=hops + 1)[1:]
    assert (counts > 0).all()
    counts = sample(task, 500, "test").slices["hops"].flatten().bincount()
    assert counts.nonzero().flatten().tolist() == tested
    assert chi_squared(counts[tested], torch.full((len(tested),), 4000 / len(tested))) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "trained", "tested", "most"),
    [
        ("depo1-225-8", 300, 860, 871),
        ("depo1-375-8", 453, 1458, 1462),
        ("depo2-75-16", 464, 1045, 1094),
        ("depo2-125-16", 682, 1649, 1705),
    ],
)
def test_instances_are_as_long_as_the_published_ones(
    which: str, trained: int, tested: int, most: int
) -> None:
    """Means within four standard errors of our own draws and of some hundred of theirs."""
    task = build(**Depo.presets[which].task)
    for split, mean in (("train", trained), ("test", tested)):
        inputs = sample(task, 100, split).inputs
        begins = (inputs == 1).nonzero()
        same = begins[1:, 0] == begins[:-1, 0]
        first = begins[:-1, 1] == 0
        lengths = (begins[1:, 1] - begins[:-1, 1])[same & first].double()
        error = float(lengths.std()) / len(lengths) ** 0.5
        # instances that fill the row by themselves are not among them, but none does
        assert len(lengths) == 100
        assert float(lengths.mean()) == pytest.approx(mean, abs=4 * error + 0.01 * mean)
        assert lengths.max() <= most + 30


def test_an_answer_is_exact_only_if_all_of_its_tokens_are_right() -> None:
    task = build(**SETTINGS["packed"])
    batch = sample(task, 20, "test")
    begins = batch.facts["length"] > 0
    wrong = torch.where(begins & (batch.facts["length"] == 2), -1, batch.targets)
    score = task.score(batch, Prediction(wrong, torch.zeros(wrong.shape)))
    value, weight = score["exact"]
    assert weight == begins.sum()
    assert value == (batch.facts["length"] == 1).sum()
    assert score["accuracy"][0] == weight + (batch.is_answer & ~begins).sum() - (weight - value)
    assert torch.equal(score["exact/hops"][1].sum(), weight)


def test_the_places_of_a_packed_row_are_never_too_few() -> None:
    """Nor more than the densest instances need: 3 nodes, of which one has a name of one token."""
    task = build(**SETTINGS["packed"])
    used = sample(task, 500).is_answer.sum(dim=1)
    assert task.answers - 12 <= used.max() < task.answers


def test_longer_rows_have_more_nodes() -> None:
    task = build(**build().longer(2))
    assert (task.seq_len, task.settings.nodes) == (128, 16)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"nodes": 33, "seq_len": 200}, "33 32 letters"),
        ({"seq_len": 48}, "8 49 seq_len 48"),
        ({"nodes": 2}, "nodes 2 3"),
        ({"hops": 0}, "hops 0 1"),
        ({"shortest": 2}, "shortest longest 2 1"),
        ({"letters": 2, "longest": 2, "nodes": 7, "seq_len": 500}, "7 2 6"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Depo, values, facts)


def test_explain_tells_edges_and_answers(task: Depo) -> None:
    batch = sample(task, 4)
    for row in range(4):
        text = task.explain(batch, row)
        length = int(batch.facts["length"][row, 0])
        name = " ".join(str(token) for token in batch.targets[row, :length].tolist())
        assert f": {name} from position {int(batch.positions[row, 0])} on" in text
        assert " > " in text
        assert IGNORE not in batch.targets[row, :1].tolist()

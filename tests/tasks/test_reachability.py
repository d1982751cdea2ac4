from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import Batch
from linbench.tasks.blocks.slots import read_statements
from linbench.tasks.reachability import Reachability
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: dict(preset.task) for name, preset in Reachability.presets.items()},
    "no arrows": {"arrows": False, "seq_len": 48},
    "no arrows, one token over": {"arrows": False, "seq_len": 50, "questions": 4},
    "a tree": {"edges": 12},
    "all edges": {"edges": 24, "seq_len": 90},
    "one hop": {"hops": 1, "nodes": 8, "edges": 6},
    "no name to spare": {"names": 16},
    "smallest": {"hops": 1, "nodes": 4, "edges": 2, "questions": 1, "seq_len": 9, "names": 4},
}
Probability = Callable[..., float]


build = partial(build_task, Reachability)


def edges_of(task: Reachability, tokens: list[int]) -> list[tuple[int, int]]:
    listed = tokens[: task.seq_len - 3 * task.answers]
    if task.settings.arrows:
        return [(listed[at - 1], listed[at + 1]) for at, token in enumerate(listed) if token == 1]
    return [
        (u, v)
        for u, v in zip(listed[len(listed) % 2 :: 2], listed[len(listed) % 2 + 1 :: 2], strict=True)
        if u
    ]


def distances(edges: list[tuple[int, int]], start: int, *, directed: bool = True) -> dict[int, int]:
    """Edges of the shortest way to all that is reached."""
    ways: dict[int, list[int]] = {}
    for u, v in edges:
        ways.setdefault(u, []).append(v)
        if not directed:
            ways.setdefault(v, []).append(u)
    found, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for there in ways.get(here, []):
            if there not in found:
                found[there] = found[here] + 1
                queue.append(there)
    return found


task = task_fixture(Reachability, SETTINGS)


def test_structure(task: Reachability) -> None:
    s = task.settings
    batch = sample(task, 30)
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        edges = edges_of(task, tokens)
        assert len(edges) == len(set(edges)) == s.edges
        nodes = {node for edge in edges for node in edge}
        assert all(5 <= node < 5 + s.names for node in nodes)
        listed = tokens[: s.seq_len - 3 * s.questions]
        assert listed.count(0) == len(listed) - s.width * s.edges
        for n in range(s.questions):
            at = int(batch.positions[row, n])
            assert at == len(listed) + 3 * n + 2
            start, ask, end = tokens[at - 2 : at + 1]
            assert ask == 2
            hops, reachable = int(batch.slices["hops"][row, n]), int(batch.slices["reachable"][row, n])
            assert distances(edges, start).get(end, -1) == (hops if reachable else -1)
            assert (end in distances(edges, start, directed=False)) == bool(reachable)
            assert start not in distances(edges, end)
            assert int(batch.targets[row, n]) == (4 if reachable else 3)
    assert torch.equal(task.solve(batch), batch.targets)
    assert task.io == IO(5 + s.names, 5 + s.names)


def test_parts_have_as_many_edges_and_levels(task: Reachability) -> None:
    s = task.settings
    batch = sample(task, 10)
    for row in range(10):
        edges = edges_of(task, batch.inputs[row].tolist())
        roots = {u for u, _ in edges} - {v for _, v in edges}
        level: dict[int, int] = {}
        for root in roots:
            for node, distance in distances(edges, root).items():
                assert level.setdefault(node, distance) == distance, "all ways to a node are as long"
        assert max(level.values()) <= s.hops
        start = int(batch.inputs[row, batch.positions[row, 0] - 2])
        part = distances(edges, start, directed=False)
        assert len(part) <= s.nodes // 2
        if len(part) == s.nodes // 2:  # a part may fall apart itself
            assert sum(u in part for u, _ in edges) == s.edges // 2


def test_a_hand_made_graph() -> None:
    task = build(hops=2, nodes=8, edges=6, questions=2, seq_len=24)
    a, b, c, d = 5, 6, 7, 8
    inputs = torch.tensor([[b, 1, c, 9, 1, 10, d, 1, c, a, 1, b, 11, 1, 12, 10, 1, 11, a, 2, c, c, 2, a]])
    asked = Batch(inputs, torch.tensor([[20, 23]]), torch.zeros(1, 2, dtype=torch.int64), {})
    assert task.solve(asked).tolist() == [[4, 3]]
    inputs[0, 18], inputs[0, 21:] = d, torch.tensor([9, 2, 12])
    assert task.solve(asked).tolist() == [[4, 4]]
    inputs[0, 20], inputs[0, 21] = b, a
    assert task.solve(asked).tolist() == [[3, 3]]


def test_answers_and_hops_are_balanced(chi_squared: Probability) -> None:
    batch = sample(build(), N)
    both = 3 * batch.slices["reachable"][:, 0] + batch.slices["hops"][:, 0] - 1
    assert chi_squared(both.bincount(minlength=6), torch.full((6,), N / 6)) > ALPHA


def test_parents_are_even(chi_squared: Probability) -> None:
    """The two children of a part fall to the two roots of a tree of two levels like coins.

    The same holds in its twin.
    """
    batch = sample(build(hops=1, nodes=8, edges=4, questions=1, seq_len=15), N)
    sources = batch.inputs[:, :12:3]
    same = (sources[:, :, None] == sources[:, None, :]).sum(dim=(1, 2))  # 2 or 4 roots with children: 8 or 4
    counts = torch.stack([(same == total).sum() for total in (8, 4)])
    assert chi_squared(counts, N * torch.tensor([1 / 2, 1 / 2])) > ALPHA


@pytest.mark.parametrize("which", Reachability.presets)
def test_degrees_do_not_tell_the_answer(which: str) -> None:
    """The best guess by how many edges leave and enter s and t, and by hops, learned from as many questions
    as it is tried on, is a coin."""
    task = build(**Reachability.presets[which].task)
    batch = sample(task, 100_000 // task.answers)
    edges = read_statements(batch.inputs[:, : -3 * task.answers], 3)
    ends = [batch.inputs.gather(1, batch.positions - back) for back in (2, 0)]
    kind = batch.slices["hops"]
    for of_edge in (0, 2):
        degree = torch.zeros(len(kind), task.io.vocab_in or 0, dtype=torch.int64).scatter_add(
            1, edges[:, :, of_edge], (edges[:, :, of_edge] > 0).long()
        )
        for end in ends:
            kind = kind * 100 + degree.gather(1, end)
    (known, tried), (said, right) = (
        x.flatten().unique(return_inverse=True)[1].chunk(2) for x in (kind, batch.targets)
    )
    yes = torch.zeros(int(max(known.max(), tried.max())) + 1, dtype=torch.int64).index_add(
        0, known, 2 * said - 1
    )
    found = ((yes > 0)[tried] == (right == 1)).double().mean()
    # questions about one graph are not quite independent
    assert abs(found - 0.5) < 5 * (0.25 / len(tried)) ** 0.5


def test_further_edges_are_even(chi_squared: Probability) -> None:
    """One edge is missing in each part, and any of its four is as likely, whichever parents came first."""
    task = build(hops=1, nodes=8, edges=6, questions=1, seq_len=21)
    batch = sample(task, N)
    tokens = batch.inputs
    start, end = tokens[:, 18], tokens[:, 20]
    out_degree = (tokens[:, 0:18:3] == start[:, None]).sum(dim=1)
    in_degree = (tokens[:, 2:18:3] == end[:, None]).sum(dim=1)
    # t is either node of the lower level, so it lacks an edge in half of the cases; s is its first parent,
    # itself one of those it has
    assert chi_squared(in_degree.bincount(minlength=3)[1:], N * torch.tensor([1 / 2, 1 / 2])) > ALPHA
    yes = batch.slices["reachable"][:, 0] == 1
    for of_these in (yes, ~yes):
        # if t has both parents, s is one of them, and one of them lacks an edge; else s is the only parent,
        # which has both children
        total = int(of_these.sum())
        assert (
            chi_squared(out_degree[of_these].bincount(minlength=3)[1:], total * torch.tensor([1 / 4, 3 / 4]))
            > ALPHA
        )


@pytest.mark.parametrize("name", ["quick", "a tree"])
def test_neither_node_alone_tells_the_answer(chi_squared: Probability, name: str) -> None:
    """The edges that lead from s and to t, and the place of the first, are as likely for yes as for no."""
    task = build(**SETTINGS[name])
    batch = sample(task, N)
    tokens, at = batch.inputs, batch.positions[:, 0]
    start, end = tokens.gather(1, at[:, None] - 2), tokens.gather(1, at[:, None])
    listed = tokens[:, : task.seq_len - 3 * task.answers]
    listed = listed[:, listed.shape[1] % 3 :]
    yes = batch.slices["reachable"][:, 0] == 1
    for node, column in ((start, 0), (start, 2), (end, 0), (end, 2)):
        here = listed[:, column::3] == node
        for fact in (here.sum(dim=1), here.long().argmax(dim=1)):
            kinds = torch.stack([fact[yes].bincount(minlength=32), fact[~yes].bincount(minlength=32)])
            kinds = kinds[:, kinds.sum(dim=0) > 40].double()
            if kinds.shape[1] < 2:
                continue
            expected = kinds.sum(dim=1, keepdim=True) * kinds.sum(dim=0, keepdim=True) / kinds.sum()
            assert chi_squared(kinds, expected, degrees=kinds.shape[1] - 1) > ALPHA


def test_chance_is_a_coin() -> None:
    assert build().chance() == 0.5


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"nodes": 15}, "nodes 15 16"),
        ({"edges": 15}, "edges 15 16"),
        ({"nodes": 80, "edges": 80}, "80 nodes names 64"),
        ({"hops": 8}, "8 edges 18 nodes 16"),
        ({"edges": 10}, "16 nodes 4 12 24 edges 10"),
        ({"edges": 26}, "16 nodes 4 12 24 edges 26"),
        ({"seq_len": 62}, "16 edges 3 5 questions seq_len 63 62"),
        ({"arrows": False, "seq_len": 46}, "16 edges 2 5 questions 3 seq_len 47 46"),
        ({"hops": 0}, "hops 0 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Reachability, values, facts)


def test_explain_lists_edges_and_answers(task: Reachability) -> None:
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    tokens, at = batch.inputs[1].tolist(), int(batch.positions[1, 0])
    u, v = edges_of(task, tokens)[0]
    assert f"{u} > {v}" in text
    answer = "yes (4)" if int(batch.targets[1, 0]) == 4 else "no (3)"
    assert f"from {tokens[at - 2]} to {tokens[at]}: at position {at} the answer is {answer}" in text
    assert len(text) < 1500

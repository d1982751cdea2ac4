import random
from collections.abc import Callable

import pytest
import torch

from linbench.tasks.blocks.dependencies import Dependencies, blind_share, draw_dependencies, most_edges
from tests.helpers.tasks import stream

ALPHA = 1e-3
N = 20_000


def draw(rows: int, nodes: int, query: str = "last") -> Dependencies:
    return draw_dependencies(stream(rows), torch.full((rows, 1), nodes), nodes, query)  # type: ignore[arg-type]


def ancestors(parents: list[list[int]], node: int) -> set[int]:
    found = {node}
    for child in range(node, -1, -1):
        found |= {parent for parent in parents[child] if child in found and parent >= 0}
    return found


def choices(parents: list[list[int]], order: list[int]) -> list[int]:
    """Count the nodes that can be said at each step of an order."""
    return [
        sum(
            node not in order[:step] and all(p in order[:step] for p in parents[node] if p >= 0)
            for node in order
        )
        for step in range(len(order))
    ]


@pytest.mark.parametrize("query", ["last", "quarter"])
def test_parents_stand_before_children(query: str) -> None:
    counts = torch.arange(40)[:, None] % 18 + 3
    graph = draw_dependencies(stream(40), counts, 20, query)  # type: ignore[arg-type]
    for row, count in enumerate(counts.flatten().tolist()):
        parents = graph.parents[row].tolist()
        assert all(parent < child for child in range(20) for parent in parents[child])
        roots = next(child for child in range(20) if parents[child][0] >= 0)
        assert roots <= (count - 1) // 4 + 1
        assert all((parents[child][0] >= 0) == (roots <= child < count) for child in range(20))
        listed = [[parent for parent in one if parent >= 0] for one in parents]
        assert all(len(set(one)) == len(one) for one in listed)
        assert max(sum(one.count(node) for one in listed) for node in range(20)) <= 4
        asked = int(graph.query[row])
        assert asked == count - 1 or (query == "quarter" and 3 * count // 4 <= asked < count)
        size = int(graph.size[row])
        order = graph.order[row, :size].tolist()
        assert graph.order[row, size:].eq(-1).all()
        assert set(order) == ancestors(parents, asked)
        assert len(set(order)) == size
        assert order[-1] == asked
        ready = [1 + max([order.index(p) for p in listed[node]], default=-1) for node in order]
        assert graph.ready[row].tolist() == ready + [0] * (20 - size)
        assert all(first <= step for step, first in enumerate(ready))


def test_graphs_of_three_nodes_have_their_shares(chi_squared: Callable[..., float]) -> None:
    """Node 1 depends on node 0; node 2 on one of them, either, or on both."""
    graph = draw(N, 3)
    assert graph.parents[:, 1].eq(torch.tensor([0, -1, -1, -1])).all()
    both = graph.parents[:, 2, 1] >= 0
    kind = torch.where(both, 2, graph.parents[:, 2, 0])
    assert chi_squared(kind.bincount(minlength=3), torch.tensor([N / 4, N / 4, N / 2])) > ALPHA
    orders = torch.tensor([[0, 2, -1], [0, 1, 2], [0, 1, 2]])
    assert torch.equal(graph.order, orders[kind])


def test_nodes_are_taken_from_the_query_upwards(chi_squared: Callable[..., float]) -> None:
    """4 depends on 2 and on a root, 2 on the other root: either parent of 4 goes first, then any of the rest.

    Uniform orders would be a third each.
    """
    graph = draw(40_000, 5)
    parents = graph.parents.sort(dim=2, descending=True).values
    kinds = torch.zeros(3, dtype=torch.int64)
    for root, other in ((0, 1), (1, 0)):
        here = (parents[:, 2] == torch.tensor([other, -1, -1, -1])).all(dim=1)
        here &= (parents[:, 4] == torch.tensor([2, root, -1, -1])).all(dim=1) & (parents[:, 1, 0] == -1)
        orders = ([other, root, 2, 4], [root, other, 2, 4], [other, 2, root, 4])
        kinds += torch.stack(
            [(graph.order[here][:, :4] == torch.tensor(one)).all(dim=1).sum() for one in orders]
        )
        assert here.sum() > 100
    total = int(kinds.sum())
    assert chi_squared(kinds, torch.tensor([total / 4, total / 4, total / 2])) > ALPHA


def by_hand(nodes: int, rng: random.Random) -> tuple[list[list[int]], list[int]]:
    roots = rng.randint(1, (nodes - 1) // 4 + 1)
    parents: list[list[int]] = [[] for _ in range(nodes)]
    for child in range(roots, nodes):
        free = [node for node in range(child) if sum(node in one for one in parents) < 4]
        parents[child] = rng.sample(free, rng.randint(1, min(4, len(free))))
    needed, order = ancestors(parents, nodes - 1), list[int]()
    while len(order) < len(needed):
        can = [
            node
            for node in needed - set(order)
            if not any(node in parents[child] for child in needed - set(order))
        ]
        order.append(rng.choice(can))
    return parents, order[::-1]


def test_the_law_is_that_of_a_plain_loop() -> None:
    """Means over graphs, within four standard errors: edges, nodes of the answer, nodes that can be said."""
    nodes, rows = 12, 400
    rng, graph = random.Random(0), draw(rows, nodes)
    ours = [
        (one, order[: int(size)])
        for one, order, size in zip(graph.parents.tolist(), graph.order.tolist(), graph.size, strict=True)
    ]
    theirs = [by_hand(nodes, rng) for _ in range(rows)]

    def measure(drawn: list[tuple[list[list[int]], list[int]]]) -> torch.Tensor:
        return torch.tensor(
            [
                (sum(p >= 0 for one in parents for p in one), len(order), sum(choices(parents, order)))
                for parents, order in drawn
            ],
            dtype=torch.float64,
        )

    a, b = measure(ours), measure(theirs)
    error = ((a.var(dim=0) + b.var(dim=0)) / rows).sqrt()
    assert ((a.mean(dim=0) - b.mean(dim=0)).abs() < 4 * error).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "size", "admissible", "rows"),
    [(70, 29.4, 4.7, 600), (110, 39.0, 6.4, 400), (8, 6.17, 1.25, 4000)],
)
def test_sizes_are_those_of_the_published_graphs(
    nodes: int, size: float, admissible: float, rows: int
) -> None:
    """Nodes of an answer, and tokens that are admissible at a place, `END` included, as this law has them."""
    graph = draw(rows, nodes)
    sizes = graph.size.double()
    error = float(sizes.std()) / rows**0.5
    assert float(sizes.mean()) == pytest.approx(size, abs=4 * error)
    assert graph.parents.ge(0).sum(dim=(1, 2)).max() <= most_edges(nodes)
    found = [
        sum(choices(one, order[: int(many)])) + 1
        for one, order, many in zip(
            graph.parents[:300].tolist(), graph.order[:300].tolist(), graph.size[:300], strict=True
        )
    ]
    assert sum(found) / float(sizes[:300].sum() + 300) == pytest.approx(admissible, rel=0.08)


@pytest.mark.parametrize(("nodes", "edges"), [(3, 3), (4, 6), (8, 22), (110, 430)])
def test_the_most_edges(nodes: int, edges: int) -> None:
    assert most_edges(nodes) == edges


def test_a_blind_guess_of_three_nodes_can_be_worked_out() -> None:
    """A quarter of answers are 0 2, the others 0 1 2.

    First one of 0 and 1 is guessed: 1/2. Then the other one, which is right in 3/4; then the query, which is
    right in 3/4. Where 0 1 2 was said, the end is.
    """
    expected = (1 / 2 + 3 / 4 + 3 / 4 + 3 / 4) / (1 / 4 * 3 + 3 / 4 * 4)
    assert blind_share(3, "last", letters=8, shortest=1, longest=1) == pytest.approx(expected, rel=0.02)

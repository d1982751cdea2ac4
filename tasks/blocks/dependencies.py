"""Graphs in which nodes depend on others, and all that one node depends on."""

from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.blocks.names import draw_names
from linbench.tasks.random import Stream

__all__ = ["DEGREE", "Dependencies", "blind_share", "draw_dependencies", "most_edges"]

DEGREE = 4
"""Parents and children of a node, at most."""

NONE, FAR = -1, 1 << 62
DRAWS = 1 << 15
"""Nodes of all graphs from which `blind_share` is estimated."""


class Dependencies(NamedTuple):
    """A graph of nodes 0, 1, ..., and what one node depends on, each node after all of its parents.

    parents: of each node, smaller numbers, then -1 [B, N, 4]. query: the node [B, 1]. order: the nodes that
    it depends on and the node itself, last, in an order in which parents stand before children; then -1
    [B, N]. ready: how many of these must stand before the one at a place can [B, N].
    """

    parents: Tensor
    query: Tensor
    order: Tensor
    ready: Tensor

    @property
    def size(self) -> Tensor:
        """Return how many nodes are in the order [B, 1]."""
        return (self.order != NONE).sum(dim=1, keepdim=True)


def most_edges(nodes: int) -> int:
    """Return how many edges a graph has at most."""
    return sum(min(DEGREE, node) for node in range(nodes))


def draw_dependencies(
    stream: Stream, count: Tensor, most: int, query: Literal["last", "quarter"]
) -> Dependencies:
    """Draw graphs with `count` [B, 1] nodes, `most` at most, and what a node of each depends on.

    The first l nodes have no parents, l uniform from 1 to (n - 1) // 4 + 1. Of those that follow, each draws
    a uniform number of parents, 1 to 4, from earlier nodes with fewer than 4 children, without replacement;
    if there are fewer such nodes, up to that many. `query` is the last node, or any of the last quarter. This
    is the law of arXiv:2512.17351.
    """
    parents = _draw_parents(stream, count, most)
    last = count if query == "last" else 3 * count // 4 + 1
    asked = last - 1 + stream.child("query").integers(1, below=count - last + 1)
    order = _draw_order(stream.child("order"), parents, asked)

    # a node can be said once its parents are: one after the last of their places
    place = torch.arange(most, device=count.device)
    at = torch.full_like(order, NONE).where(order == NONE, place)
    where_said = torch.full((len(order), most + 1), NONE, device=count.device).scatter(
        1, order.where(order != NONE, most), at
    )
    parents_of_order = parents.take_along_dim(order.clamp(min=0)[:, :, None], dim=1)
    said = where_said.gather(1, parents_of_order.where(parents_of_order != NONE, most).flatten(1))
    ready = 1 + said.view(parents_of_order.shape).masked_fill(parents_of_order == NONE, NONE).amax(dim=2)
    return Dependencies(parents, asked, order, ready.where(order != NONE, 0))


def _draw_parents(stream: Stream, count: Tensor, most: int) -> Tensor:
    roots = 1 + stream.child("roots").integers(1, below=(count - 1) // 4 + 1)
    degree, draw = stream.child("degree"), stream.child("parents")
    node = torch.arange(most, device=count.device)
    children = torch.zeros(len(count), most + 1, dtype=torch.int64, device=count.device)
    parents = [torch.full((len(count), DEGREE), NONE, device=count.device)]
    for child in range(1, most):
        free = children[:, :child] < DEGREE
        # the free nodes in random order; numbers that no two nodes share
        rank = (draw.bits(child * most + node[:child]) * most + node[:child]).masked_fill(~free, FAR)
        first = rank.topk(min(DEGREE, child), dim=1, largest=False).indices
        wanted = 1 + degree.integers_at(
            node[child : child + 1], below=free.sum(dim=1, keepdim=True).clamp(max=DEGREE)
        )
        drawn = (node[: first.shape[1]] < wanted) & (child >= roots) & (child < count)
        children = children.scatter_add(1, first.where(drawn, most), torch.ones_like(first))
        parents.append(pad(first.masked_fill(~drawn, NONE), (0, DEGREE - first.shape[1]), value=NONE))
    return torch.stack(parents, dim=1)


def _draw_order(stream: Stream, parents: Tensor, query: Tensor) -> Tensor:
    """Draw an order of all that the query depends on.

    From the query downwards, one of the nodes whose children are all taken is taken next, any with equal
    probability. The order is that of taking them, reversed.
    """
    rows, most, _ = parents.shape
    node = torch.arange(most, device=parents.device)
    into = parents.masked_fill(parents == NONE, most)  # an extra place for no parent
    needed = torch.zeros(rows, most + 1, dtype=torch.int64, device=parents.device).scatter(1, query, 1)
    for child in range(most - 1, 0, -1):
        needed = needed.scatter_add(1, into[:, child], needed[:, child, None].clamp(max=1).expand(-1, DEGREE))
    # the children of each that are not taken yet; -1 for what is taken or not needed
    left = needed.where(needed > 0, NONE).scatter(1, query, 0)
    taken = []
    for step in range(most):
        rank = (stream.bits(step * most + node) * most + node).masked_fill(left[:, :most] != 0, FAR)
        least, next_ = rank.min(dim=1, keepdim=True)
        taken.append(next_.masked_fill(least == FAR, NONE))
        above = into.take_along_dim(next_[:, :, None], dim=1)[:, 0]
        left = left.scatter(1, next_, NONE).scatter_add(1, above, torch.full_like(above, -1))
    order = torch.cat(taken, dim=1).flip(1)
    size = (order != NONE).sum(dim=1, keepdim=True)
    # what was not taken stands first after the flip
    return order.gather(1, (node + most - size) % most)


@cache
def blind_share(
    nodes: int, query: Literal["last", "quarter"], *, letters: int, shortest: int, longest: int
) -> float:
    """Return how often a guess at the order of a graph's node is admissible if no edge is known.

    The guesser knows the names of all nodes, the query and what was said before. At each step the likeliest
    of three is guessed: that all is said, the query, or the commonest next token of other nodes' names.

    Estimated from draws.
    """
    rows = DRAWS // nodes
    stream = Stream.of(torch.arange(rows), seed=0, split="chance")
    names, length = draw_names(
        stream.child("names"), nodes, letters=letters, shortest=shortest, longest=longest
    )
    mixed = stream.child("mixed").shuffle(nodes)
    names, length = names.take_along_dim(mixed[:, :, None], dim=1), length.gather(1, mixed)
    graph = draw_dependencies(stream, torch.full((rows, 1), nodes), nodes, query)
    node = torch.arange(nodes)
    used = graph.order != NONE
    # of every node: at which step it is said, and from which step on it can be
    into = graph.order.where(used, nodes)
    step_of, ready_of = (
        torch.full((rows, nodes + 1), nodes + 1).scatter(1, into, x)[:, None, :nodes]
        for x in (node.expand(rows, -1), graph.ready)
    )
    step = node[:, None]
    unsaid = step <= step_of
    admissible = unsaid & (ready_of <= step)
    is_query = node == graph.query[:, :, None]
    due, right = 0.0, 0.0
    agrees = torch.ones(rows, nodes, nodes, dtype=torch.bool)
    for place in range(longest):
        token = names[:, None, :, place].expand(rows, nodes, nodes)
        asked = used & (length.gather(1, graph.order.clamp(min=0)) > place)
        candidates = agrees & unsaid & (~is_query if place == 0 else True)
        counts = torch.zeros(rows, nodes, 2 * letters)
        fits = counts.scatter_reduce(2, token, (agrees & admissible).float(), "amax")
        counts = counts.scatter_add(2, token, candidates.float())
        best = counts == counts.amax(dim=2, keepdim=True)
        other = (fits * best).sum(dim=2) / best.sum(dim=2)
        if place == 0:
            ended = graph.size == torch.arange(nodes + 1)  # where END is due
            due += float(used.sum() + rows)
            last = graph.size - 1 == node
            options = torch.stack([ended[:, :nodes].sum(0), last.sum(0), (other * used).sum(0)])
            right += float(options.amax(dim=0).sum() + ended[:, nodes].sum())
        else:
            due += float(asked.sum())
            right += float((other * asked).sum())
        true = names.take_along_dim(graph.order.clamp(min=0)[:, :, None], dim=1)[:, :, place, None]
        agrees = agrees & (token == true)
    return right / due

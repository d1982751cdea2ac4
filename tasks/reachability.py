"""Reachability in a graph."""

from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.blocks.slots import lay_out, read_statements, statement_slots
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream, constant

_ARROW, _ASK, _NO, _YES, _NAMES = 1, 2, 3, 4, 5
_QUESTION = 3


class ReachabilitySettings(Settings):
    """Settings: size of the graph and length of its paths."""

    seq_len: int = Field(64, ge=6, description="length of a sequence; where nothing is said, 0")
    nodes: int = Field(16, ge=4, description="nodes, half of them in each of two parts; even")
    edges: int = Field(16, ge=2, description="edges, half of them in each part, none between them; even")
    hops: int = Field(
        3,
        ge=1,
        description="length of the longest path; an edge goes from one of hops + 1 levels to the next",
    )
    questions: int = Field(5, ge=1, description="pairs asked for, at the end")
    names: int = Field(64, ge=4, description="tokens that name nodes")
    arrows: bool = Field(
        True,
        description="an edge is written `u > v`, else `u v`, so that only its place tells where it begins",
    )

    @property
    def levels(self) -> list[int]:
        """Number of nodes on each level of a part: node i is on level i % (hops + 1)."""
        return [len(range(level, self.nodes // 2, self.hops + 1)) for level in range(self.hops + 1)]

    @property
    def width(self) -> int:
        """Tokens of an edge."""
        return 3 if self.arrows else 2

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name, count in (("nodes", self.nodes), ("edges", self.edges)):
            refuse_odd(name, count, "both parts have half of them")
        if self.nodes > self.names:
            raise ValueError(
                f"{self.nodes} nodes have different names, so names must be at least that, not {self.names}"
            )
        if self.nodes < 2 * (self.hops + 1):
            raise ValueError(
                f"paths of {self.hops} edges in two parts need at least {2 * (self.hops + 1)} nodes;"
                f" {self.nodes} are too few"
            )
        fewest = self.nodes - 2 * self.levels[0]
        most = 2 * sum(a * b for a, b in zip(self.levels[:-1], self.levels[1:], strict=True))
        if not fewest <= self.edges <= most:
            raise ValueError(
                f"{self.nodes} nodes on two times {self.hops + 1} levels have from {fewest} to {most} edges,"
                f" not {self.edges}"
            )
        needed = self.width * self.edges + _QUESTION * self.questions
        if needed > self.seq_len:
            raise ValueError(
                f"{self.edges} edges of {self.width} tokens and {self.questions} questions of {_QUESTION}"
                f" need a seq_len of at least {needed}; {self.seq_len} is too short"
            )
        return self


class _Tables(NamedTuple):
    """Nodes and possible edges of one part, with nodes numbered 0, 1, ...

    children: nodes that have a parent. parents: how many nodes may be it. sources and targets: all possible
    edges.
    """

    children: tuple[int, ...]
    parents: tuple[int, ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]


class Reachability(Task):
    """Can one get from this node to that one?

    The edges of a directed graph are listed in random order, then `s ? t` follows, and at t yes or no is due.
    Edges must be joined to paths of up to `hops`, since s and t give no other hint of the answer. It does not
    tell which path was found, nor whether a model respects the direction of edges.

    Layout: the graph has two parts with the same edges between other names, and none from one to the other.
    Edges lead from one level of a part to the next, so that all paths from s to t are equally long: `hops`
    edges, any number up to the longest. For a no, t is the node of the other part in place of one that s
    leads to.

    Chance: yes or no.

    linbench's own, after the reachability experiment of DeltaFormer, arXiv:2505.19488, whose generator is not
    published in detail.
    """

    name = "reachability"
    version = 2
    skill = "reason"
    Settings = ReachabilitySettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "16 nodes, 16 edges, up to 3 hops, 5 questions", protocol={"lr": 3e-3, "tokens": 1_638_400}
        ),
        "hops-4": Preset(
            "30 nodes, 40 edges, up to 4 hops",
            task={"seq_len": 144, "nodes": 30, "edges": 40, "hops": 4, "questions": 8},
            protocol={"tokens": 50_000_000},
        ),
        "hops-8": Preset(
            "64 nodes, 80 edges, up to 8 hops",
            task={"seq_len": 264, "nodes": 64, "edges": 80, "hops": 8, "questions": 8},
            protocol={"tokens": 50_000_000},
        ),
    }

    settings: ReachabilitySettings

    @property
    def io(self) -> IO:
        """Filler, `>`, `?`, no, yes and names."""
        return IO(self._vocab, self._vocab)

    @property
    def _vocab(self) -> int:
        return _NAMES + self.settings.names

    @property
    def answers(self) -> int:
        """One per question."""
        return self.settings.questions

    @property
    def _edges_length(self) -> int:
        """Tokens before the first question."""
        return self.settings.seq_len - _QUESTION * self.settings.questions

    @cached_property
    def _tables(self) -> _Tables:
        s = self.settings
        period = s.hops + 1
        children = [node for node in range(s.nodes // 2) if node % period]
        pairs = [(u, v) for v in children for u in range(v % period - 1, s.nodes // 2, period)]
        sources, targets = zip(*pairs, strict=True)
        return _Tables(
            tuple(children), tuple(s.levels[node % period - 1] for node in children), sources, targets
        )

    def chance(self) -> float:
        """Return 1 / 2: yes or no."""
        return 0.5

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        hops: levels from s to t, the edges of a path if there is one. reachable: whether there is one.
        """
        return {"hops": self.settings.hops + 1, "reachable": 2}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        Node nodes / 2 + i of the graph, in the second part, is the twin of node i in the first; twins are
        asked for where the answer is no.
        """
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        half, period = s.nodes // 2, s.hops + 1
        parent, sources, targets = (
            torch.cat([x, half + x], dim=1) for x in self._draw_part(stream.child("part"))
        )
        names = _NAMES + stream.child("names").permutation(s.names)(torch.arange(s.nodes, device=device))
        ends = [names.gather(1, sources), names.gather(1, targets)]
        edges = torch.stack([ends[0], torch.full_like(sources, _ARROW), ends[1]] if s.arrows else ends, dim=2)
        slots = stream.child("slots").permutation(statement_slots(self._edges_length, s.width))(
            torch.arange(s.edges, device=device)
        )

        draw = stream.child("questions")
        hops = 1 + draw.child("hops").integers(s.questions, below=s.hops)
        level = hops + draw.child("level").integers(s.questions, below=period - hops)
        on_level = constant(tuple(s.levels), device)[level]
        below = level + period * draw.child("end").integers(s.questions, below=on_level)
        side = draw.child("side").integers(s.questions, below=2) * half
        start = below + side
        for step in range(s.hops):
            start = torch.where(step < hops, parent.gather(1, start), start)
        reachable = draw.child("reachable").happens(s.questions, share=0.5)
        end = below + torch.where(reachable, side, half - side)
        questions = torch.stack(
            [names.gather(1, start), torch.full_like(start, _ASK), names.gather(1, end)], dim=2
        ).flatten(1)

        inputs = torch.cat([lay_out(edges, slots, length=self._edges_length), questions], dim=1)
        positions = self._edges_length + _QUESTION * torch.arange(s.questions, device=device) + _QUESTION - 1
        return Batch(
            inputs,
            positions.repeat(len(index), 1),
            torch.where(reachable, _YES, _NO),
            {"hops": hops, "reachable": reachable.long()},
        )

    def _draw_part(self, stream: Stream) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parents [B, nodes / 2], and the sources and targets [B, edges / 2] of distinct edges.

        Every node below the first level is reached through its parent.
        """
        s, device, tables = self.settings, stream.key.device, self._tables
        count, tree = s.edges // 2, len(tables.children)
        children = constant(tables.children, device)
        parents = (children - 1) % (s.hops + 1) + (s.hops + 1) * stream.child("parents").integers(
            tree, below=constant(tables.parents, device)
        )
        parent = torch.zeros(len(parents), s.nodes // 2, dtype=torch.int64, device=device).scatter(
            1, children.expand_as(parents), parents
        )
        # further edges: of all that there can be, in random order, the first ones that are not there yet
        order = stream.child("edges").permutation(len(tables.sources))(torch.arange(count, device=device))
        sources, targets = constant(tables.sources, device)[order], constant(tables.targets, device)[order]
        new = parent.gather(1, targets) != sources
        place = torch.where(new, tree - 1 + new.cumsum(dim=1), count).clamp(max=count)
        added = [
            torch.zeros(len(parents), count + 1, dtype=torch.int64, device=device).scatter(1, place, ends)[
                :, tree:count
            ]
            for ends in (sources, targets)
        ]
        return (
            parent,
            torch.cat([parents, added[0]], dim=1),
            torch.cat([children.expand_as(parents), added[1]], dim=1),
        )

    def solve(self, batch: Batch) -> Tensor:
        """Follow edges from all reached nodes, as often as that can matter."""
        edges = read_statements(batch.inputs[:, : self._edges_length], self.settings.width)
        sources, targets = (edges[:, None, :, end].expand(-1, self.answers, -1) for end in (0, -1))
        start, end = (
            batch.inputs.gather(1, batch.positions - 2)[:, :, None],
            batch.inputs.gather(1, batch.positions)[:, :, None],
        )
        reached = torch.zeros(
            *batch.positions.shape, self._vocab, dtype=torch.uint8, device=end.device
        ).scatter(2, start, 1)
        for _ in range(self.settings.nodes):
            reached = reached.scatter_reduce(2, targets, reached.gather(2, sources), "amax")
        return torch.where(reached.gather(2, end)[:, :, 0] > 0, _YES, _NO)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the edges in their order, then the questions."""
        listed = read_statements(batch.inputs[row : row + 1, : self._edges_length], self.settings.width)[
            0
        ].tolist()
        edges = [f"{edge[0]} > {edge[-1]}" for edge in listed if edge[0]]
        tokens, asked = batch.inputs[row].tolist(), []
        for n, at in enumerate(batch.positions[row].tolist()):
            answer = f"yes ({_YES})" if int(batch.targets[row, n]) == _YES else f"no ({_NO})"
            asked.append(
                f"from {tokens[at - 2]} to {tokens[at]}: at position {at} the answer is {answer}, levels"
                f" apart: {int(batch.slices['hops'][row, n])}"
            )
        shown = ", ".join(edges[:80]) + (", ..." if len(edges) > 80 else "")
        return f"The graph has the edges {shown}. Is there a way " + "; ".join(asked[:8]) + "."

"""Steps along a cycle of which the edges are given."""

from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import pad

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.exact_match import exact_match
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.names import Names, draw_names, read_words, shared_prefix_share, write_words
from linbench.tasks.blocks.packing import Instances, Pack, instances_needed, pack
from linbench.tasks.blocks.playground import published
from linbench.tasks.blocks.sizes import FEWEST, draw_size, shuffle_first, size_shares
from linbench.tasks.random import Stream, constant, inverse

BEGIN, ANSWER, ASK = 1, 2, 3
"""Tokens before an instance and before an answer; `ASK + k - 1` asks for the k-th successor."""


class DepoSettings(Names):
    """Settings: size of the cycle, steps, and names."""

    seq_len: int = Field(64, ge=4, description="length of a row")
    nodes: int = Field(
        8, ge=FEWEST, description="N, nodes of the cycle in tests; in training 3 to N, small ones oftener"
    )
    hops: int = Field(
        2, ge=1, description="K, the most steps that are asked for; in tests the powers of two up to K, and K"
    )
    questions: int = Field(
        10, ge=1, description="questions to a cycle, about different nodes; fewer if it has fewer nodes"
    )
    pack: Pack = False

    def asked(self, nodes: int) -> int:
        """Return how many nodes of a cycle are asked for."""
        return min(self.questions, nodes)

    def tokens(self, nodes: int, length: int) -> int:
        """Return the tokens of an instance if all of its names have that length."""
        return 1 + 2 * nodes * length + self.asked(nodes) * (2 + 2 * length)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.refuse_few_names(self.nodes)
        needed = self.tokens(self.nodes, self.longest)
        if needed > self.seq_len:
            raise ValueError(
                f"a cycle of {self.nodes} nodes with {self.asked(self.nodes)} questions takes up to {needed}"
                f" tokens, so seq_len must be at least that, not {self.seq_len}"
            )
        return self


class _Question(NamedTuple):
    """Question with its number of steps, the position of `ANSWER` and the name that is due from there on."""

    at: int
    hops: int
    asked: tuple[int, ...]
    answer: tuple[int, ...]


class _Instance(NamedTuple):
    """An instance as it was read, with the position of its `BEGIN`."""

    at: int
    edges: list[tuple[tuple[int, ...], tuple[int, ...]]]
    questions: list[_Question]


class Depo(Task):
    """Given the edges of a cycle in any order, which node comes k steps after this one?

    Several questions follow the edges, each with a node and a number of steps of its own. So the map is held
    before it is known what will be asked for, and k lookups must be made one after another, each of which
    needs the last one's result. That takes depth, or a map that was prepared on the way. It does not tell of
    overwriting, since every node has one successor.

    Layout: `BEGIN`, then `x y` for each edge, then for each question `ASK-k q ANSWER a`. Names have one or
    several tokens. In training a cycle has 3 to N nodes, with weight 1 / (n + sqrt N), and k is uniform from
    1 to K. In validation and tests it has N nodes, and k is a power of two up to K, or K. With `pack`
    instances follow one another in a row, and the last one is cut off. Each token of an answer is due after
    the ones before it. "exact" is how often an answer is right in all its tokens.

    One hop alone is right in 1 / K of training questions, so read `exact/hops` rather than a mean over them.
    The slice `edge` is the number of edges before the first one needed; `reversed` tells how many of the
    edges needed stand before the one that leads to them, so that one pass over the list cannot join them.

    Chance: the commonest next token among the names of the cycle that begin as the answer so far. With
    one-token names this is 1 / N, with others more; `exact` by chance is 1 / N always.

    Allen-Zhu 2025 (Physics of Language Models, part 4.1), arXiv:2512.17351, whose released generator this
    follows. The paper also trains on the token ANSWER, which is always the same, and counts whole answers.
    For Depo2 the paper says that names have 4 letters, while the code has 3: the presets have 4. Of four
    published models and rates, presets have the largest model and 1e-3.
    """

    name = "depo"
    skill = "reason"
    Settings = DepoSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two minutes on a laptop: cycles of 3 or 4 nodes, one or two steps",
            task={"letters": 32, "seq_len": 64, "nodes": 4, "pack": True},
            protocol={"lr": 6e-3, "batch_size": 16, "tokens": 3_000_000},
        ),
        "quick-6": Preset(
            "cycles of up to 6 nodes, one or two steps; needs more than these tokens to be learned",
            task={"letters": 32, "seq_len": 40, "nodes": 6},
            protocol={"lr": 6e-3, "tokens": 2_000_000},
        ),
        "quick-4": Preset(
            "cycles of up to 16 nodes, up to 4 steps",
            task={"letters": 32, "seq_len": 96, "nodes": 16, "hops": 4},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        **{
            f"depo{which}-{nodes}-{hops}": Preset(
                f"Depo{which} of 2512.17351, N = {nodes}, {weak}K = {hops}{named}; one of four rates, and a"
                " cosine down to 0, not to a tenth",
                task={
                    "seq_len": 2048,
                    "nodes": nodes,
                    "hops": hops,
                    "letters": letters,
                    "shortest": shortest,
                    "longest": longest,
                    "pack": True,
                },
                **published(steps=steps, batch_size=128, seq_len=2048),
            )
            for which, letters, shortest, longest, most, named, sizes in (
                (1, 50, 1, 2, 8, "", ((225, 87_500), (300, 100_000), (375, 112_500))),
                (2, 4, 5, 7, 16, ", 4 letters", ((75, 100_000), (100, 125_000), (125, 150_000))),
            )
            for hops, weak in ((most, ""), (4, "weak form "))
            for nodes, steps in sizes
        },
    }

    settings: DepoSettings

    @property
    def io(self) -> IO:
        """Padding, `BEGIN`, `ANSWER`, `ASK-1` to `ASK-K`, and the tokens of names."""
        size = self._names + self.settings.name_tokens
        return IO(size, size)

    @property
    def _names(self) -> int:
        return ASK + self.settings.hops

    @property
    def answers(self) -> int:
        """The tokens of all answers, or, in packed rows, a bound on them.

        A cut-off instance has no more of them for its tokens than a whole one, up to its last token.
        """
        s = self.settings
        if not s.pack:
            return s.asked(s.nodes) * s.longest
        shares = []
        for nodes in range(FEWEST, s.nodes + 1):
            due = s.asked(nodes) * s.longest
            shares.append(due / (s.tokens(nodes, s.shortest) - s.asked(nodes) * s.shortest + due))
        return int(max(shares) * (s.seq_len + 1))

    def _instances(self, split: Split) -> int:
        s = self.settings
        if not s.pack:
            return 1
        fewest = tuple((s.tokens(n, s.shortest), share) for n, share in size_shares(s.nodes, split))
        return instances_needed(fewest, s.seq_len)

    def chance(self) -> float:
        """Return the accuracy of naming the commonest next token among possible names of the cycle."""
        s = self.settings
        return shared_prefix_share(s.nodes, letters=s.letters, shortest=s.shortest, longest=s.longest)

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more nodes."""
        return {"seq_len": times * self.seq_len, "nodes": times * self.settings.nodes}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        hops: k. nodes: of the cycle. edge: number of edges before the first that is needed. reversed: edges
        needed that stand before the one that leads to them.
        """
        s = self.settings
        return {"hops": s.hops + 1, "nodes": s.nodes + 1, "edge": s.nodes, "reversed": s.hops}

    @cached_property
    def _tested(self) -> tuple[int, ...]:
        """The numbers of steps that tests ask for."""
        most = self.settings.hops
        return tuple(sorted({most, *(2**power for power in range(most.bit_length()))}))

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; the fact "length" is how many tokens an answer has, at its first place."""
        return pack(
            partial(self._draw, split=split),
            Stream.of(index, seed=seed, split=split),
            seq_len=self.seq_len,
            answers=self.answers,
            instances=self._instances(split),
        )

    def _draw(self, stream: Stream, split: Split) -> Instances:
        """Draw instances; nodes are numbered round the cycle."""
        s, device = self.settings, stream.key.device
        nodes = draw_size(stream.child("nodes"), s.nodes, split)
        names, length = draw_names(
            stream.child("names"), s.nodes, letters=s.letters, shortest=s.shortest, longest=s.longest
        )
        cycle = shuffle_first(stream.child("cycle"), nodes, s.nodes)
        names, length = names.take_along_dim(cycle[:, :, None], dim=1) + self._names, length.gather(1, cycle)
        source = shuffle_first(stream.child("edges"), nodes, s.nodes)
        edges = torch.stack([source, (source + 1) % nodes], dim=2).flatten(1)
        listed = torch.arange(2 * s.nodes, device=device) < 2 * nodes

        most = s.asked(s.nodes)
        start = shuffle_first(stream.child("asked"), nodes, s.nodes)[:, :most]
        hops = self._draw_hops(stream.child("hops"), most, split)
        answer = (start + hops) % nodes
        used = torch.arange(most, device=device) < nodes

        def special(token: Tensor) -> Tensor:
            return pad(token[:, :, None], (0, s.longest - 1))

        def named(node: Tensor) -> Tensor:
            return names.take_along_dim(node[:, :, None], dim=1)

        one = torch.ones_like(hops)
        begin = one[:, :1]
        questions = torch.stack(
            [special(ASK - 1 + hops), named(start), special(ANSWER * one), named(answer)], dim=2
        )
        lengths = torch.stack([one, length.gather(1, start), one, length.gather(1, answer)], dim=2)
        words = torch.cat([special(BEGIN * begin), named(edges), questions.flatten(1, 2)], dim=1)
        word_length = torch.cat(
            [begin, length.gather(1, edges) * listed, (lengths * used[:, :, None]).flatten(1)], dim=1
        )
        inputs, begins = write_words(words, word_length)

        answered = length.gather(1, answer) * used
        token = torch.arange(s.longest, device=device)
        at = begins[:, 1 + 2 * s.nodes + 3 :: 4, None] - 1
        due = token < answered[:, :, None]

        def each_token(x: Tensor) -> Tensor:
            return x[:, :, None].expand(due.shape).flatten(1)

        place = inverse(source)
        slices = {
            "hops": hops,
            "nodes": nodes.expand_as(hops),
            "edge": place.gather(1, start),
            "reversed": self._reversed(place, start, hops, nodes),
        }
        return Instances(
            inputs,
            word_length.sum(dim=1),
            (at + token).flatten(1),
            named(answer).where(due, IGNORE).flatten(1),
            {name: each_token(x * used) for name, x in slices.items()},
            {"length": (answered[:, :, None] * (token == 0)).flatten(1)},
            each_token(at[:, :, 0] + answered - 1),
        )

    def _draw_hops(self, stream: Stream, count: int, split: Split) -> Tensor:
        if split == "train":
            return 1 + stream.integers(count, below=self.settings.hops)
        tested = constant(self._tested, stream.key.device)
        return tested[stream.integers(count, below=len(tested))]

    def _reversed(self, place: Tensor, start: Tensor, hops: Tensor, nodes: Tensor) -> Tensor:
        """Return how many edges on the way from `start` stand before the one that leads to them.

        Args:
            place: of the edge that leaves each node, in the list [B, N].
            start: nodes that are asked for [B, M].
            hops: k [B, M].
            nodes: of the cycle [B, 1].
        """
        count, last = torch.zeros_like(hops), place.gather(1, start)
        for step in range(1, self.settings.hops):
            here = place.gather(1, (start + step) % nodes)
            count = count + ((step < hops) & (here < last)).to(torch.int64)
            last = here
        return count

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "exact": how often an answer is right in all its tokens."""
        return super().means(batch, prediction) | {
            "exact": exact_match(batch, prediction, length=batch.facts["length"])
        }

    def _read(self, tokens: list[int]) -> list[_Instance]:
        """Read a row word by word."""
        instances = [_Instance(0, [], [])]
        names: list[tuple[int, ...]] = []
        hops = 0
        for at, word in read_words(tokens, self.settings, self._names):
            edges, questions = instances[-1][1:]
            if word == (BEGIN,):
                instances.append(_Instance(at, [], []))
                names = []
            elif word == (ANSWER,) and names:
                successor, node = dict(edges), names[-1]
                for _ in range(hops):
                    node = successor.get(node, node)
                questions.append(_Question(at, hops, names[-1], node))
            elif ASK <= word[0] < self._names:
                hops = word[0] - ASK + 1
                edges = edges or list(zip(names[::2], names[1::2], strict=False))
                instances[-1] = instances[-1]._replace(edges=edges)
            elif word[0] >= self._names:
                names.append(word)
        return instances[1:]

    def solve(self, batch: Batch) -> Tensor:
        """Read the edges into a map, and follow it as often as is asked for."""
        answers = torch.zeros_like(batch.inputs[:, : self.seq_len])
        for row, tokens in enumerate(batch.inputs.tolist()):
            for instance in self._read(tokens):
                for at, _, _, answer in instance.questions:
                    written = torch.tensor(answer[: self.seq_len - at])
                    answers[row, at : at + len(written)] = written
        return answers.gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the edges of the first cycle, and its questions with their answers."""
        read = self._read(batch.inputs[row].tolist())
        _, edges, questions = read[0]

        def say(name: tuple[int, ...]) -> str:
            return " ".join(str(token) for token in name)

        listed = join_examples([f"{say(x)} > {say(y)}" for x, y in edges], most=24, between=", ")
        asked = join_examples(
            [
                f"{hops} step{'s' * (hops > 1)} from {say(node)}: {say(answer)} from position {at} on"
                for at, hops, node, answer in questions
            ]
        )
        more = f" {len(read) - 1} more in the row." if len(read) > 1 else ""
        return (
            f"A cycle of {len(edges)} edges: {listed}. It is asked which node is reached, and its name is due"
            f" at {ANSWER}: {asked}.{more}"
        )

"""All that a node of a graph depends on, in an order."""

from functools import cached_property, partial
from itertools import takewhile
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import pad

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean, Writing
from linbench.tasks.blocks.dependencies import DEGREE, blind_share, draw_dependencies, most_edges
from linbench.tasks.blocks.dependency_text import (
    ANSWER,
    BEGIN,
    END,
    NAMES,
    QUERY,
    Name,
    admissible_answer,
    is_right,
    read_instances,
)
from linbench.tasks.blocks.exact_match import exact_match
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.names import Names, draw_names, write_words
from linbench.tasks.blocks.packing import Instances, Pack, instances_needed, pack
from linbench.tasks.blocks.playground import published
from linbench.tasks.blocks.sizes import FEWEST, draw_size, shuffle_first, size_shares
from linbench.tasks.random import Stream, constant

AT_ONCE = 64
"""Places that are compared with all of their row at once, which bounds the memory it takes."""


class BrevoSettings(Names):
    """Settings: size of the graph, its question, and names."""

    seq_len: int = Field(64, ge=4, description="length of a row")
    nodes: int = Field(
        8, ge=FEWEST, description="N, nodes of the graph in tests; in training 3 to N, small ones oftener"
    )
    query: Literal["last", "quarter"] = Field(
        "last",
        description=(
            "node that is asked for: the last one, as in the published code, or any of the last quarter, as"
            " in the paper"
        ),
    )
    pack: Pack = False

    def tokens(self, nodes: int, length: float) -> float:
        """Return the most tokens of an instance if all of its names have that length."""
        return 4 + length * (2 * most_edges(nodes) + 1 + nodes)

    def fewest_tokens(self, nodes: int) -> int:
        """Return a lower bound of the tokens of an instance, whose query has a parent."""
        edges = nodes - (nodes - 1) // 4 - 1
        return 4 + self.shortest * (2 * edges + 1 + 2)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.refuse_few_names(self.nodes)
        # in packed rows an instance may be cut off, which hardly any is if those of usual names fit
        length = (self.shortest + self.longest) / 2 if self.pack else self.longest
        needed = self.tokens(self.nodes, length)
        if needed > self.seq_len:
            raise ValueError(
                f"a graph of {self.nodes} nodes takes up to {needed:g} tokens with names of {length:g}, so"
                f" seq_len must be at least that, not {self.seq_len}"
            )
        return self


class Brevo(Task):
    """Given a graph of dependencies, what does this node depend on, parents before children?

    The edges come in any order, then a node. Then all of its ancestors are due and the node itself, each
    after all of its parents. So the graph must be searched from the node upwards before the first answer,
    which is far from the node. It does not tell which of several right orders a model prefers.

    Layout: `BEGIN`, then `parent child` for each edge, then `QUERY q ANSWER`, the names of the answer, `END`.
    A node has up to 4 parents and 4 children. In training a graph has 3 to N nodes, with weight 1 / (n + sqrt
    N); in validation and tests N. Of the orders in which parents stand before children one is drawn, by
    taking nodes away from the query upwards. With `pack` instances follow one another in a row, and the last
    one is cut off. So is one that is longer than a row.

    Many orders are right. Training is on the one drawn, but a score asks whether a token is admissible: it
    goes on with a name that is needed, not said yet, and with all parents said; or it is `END` once all is
    said. "accuracy" is how often a token is admissible, and "exact" how often all tokens of an answer are.
    "generated" is how often an answer is right that the model writes by itself, each time with the likeliest
    token; it is measured in tests, for the first graph of each row. Loss cannot reach 0.

    Chance: `END`, the query or any other node that is not said yet, whichever is likelier at this step, for a
    guesser who knows the nodes but no edges. It is estimated from draws. By chance no answer is exact.

    Allen-Zhu 2025 (Physics of Language Models, part 4.1), arXiv:2512.17351. Published numbers are what
    "generated" measures; in the other scores what was said before is right. The paper also trains on the
    token ANSWER, which is always the same. Its code asks for the last node only and has one token for ANSWER
    and END; the paper has two. Of four published models and rates, presets have the largest model and 1e-3.
    """

    name = "brevo"
    skill = "reason"
    Settings = BrevoSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two minutes on a laptop: graphs of 3 or 4 nodes",
            task={"letters": 32, "nodes": 4, "pack": True},
            protocol={"lr": 3e-3, "batch_size": 16, "tokens": 2_500_000},
        ),
        "quick-8": Preset(
            "graphs of up to 8 nodes; needs more than these tokens to be learned",
            task={"letters": 32},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "quick-12": Preset(
            "graphs of up to 12 nodes",
            task={"letters": 32, "seq_len": 96, "nodes": 12},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        **{
            f"brevo{which}-{nodes}": Preset(
                f"Brevo{which} of 2512.17351, N = {nodes}; one of four rates, and a cosine down to 0, not"
                " to a tenth",
                task={
                    "seq_len": length,
                    "nodes": nodes,
                    "letters": letters or nodes,
                    "shortest": shortest,
                    "longest": longest,
                    "pack": True,
                },
                **published(steps=steps, batch_size=batch, seq_len=length),
            )
            for which, length, batch, letters, shortest, longest, sizes in (
                (1, 1024, 256, None, 1, 1, ((70, 100_000), (90, 125_000), (110, 150_000))),
                (2, 1536, 192, 4, 2, 4, ((30, 200_000), (40, 225_000), (50, 250_000))),
            )
            for nodes, steps in sizes
        },
    }

    settings: BrevoSettings

    @property
    def io(self) -> IO:
        """Padding, `BEGIN`, `QUERY`, `ANSWER`, `END`, and the tokens of names."""
        size = NAMES + self.settings.name_tokens
        return IO(size, size)

    @property
    def answers(self) -> int:
        """The tokens of all nodes and `END`, or, in packed rows, a bound on those of all answers.

        Each ancestor stands as a parent before the answer, and each but the roots as a child of each parent.
        """
        s = self.settings
        most = s.nodes * s.longest + 1
        if not s.pack:
            return most
        shares = []
        for nodes in range(2, s.nodes + 1):
            due = nodes * s.longest + 1
            shares.append(due / (3 + due + nodes * s.longest + (nodes - 1) * s.shortest))
        return int(max(shares) * (s.seq_len + 1))

    @cached_property
    def _edges(self) -> int:
        return most_edges(self.settings.nodes)

    def _instances(self, split: Split) -> int:
        s = self.settings
        if not s.pack:
            return 1
        fewest = tuple((s.fewest_tokens(n), share) for n, share in size_shares(s.nodes, split))
        return instances_needed(fewest, s.seq_len)

    def chance(self) -> float:
        """Return the accuracy of a guesser who knows the nodes, the query and the step, but no edges."""
        s = self.settings
        return blind_share(s.nodes, s.query, letters=s.letters, shortest=s.shortest, longest=s.longest)

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more nodes."""
        nodes = FEWEST + times * (self.settings.nodes - FEWEST)
        return {"seq_len": times * self.seq_len, "nodes": nodes}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        step: nodes said before. size: nodes of the answer.
        """
        return {"step": self.settings.nodes + 1, "size": self.settings.nodes + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        The facts [B, N], by which `means` finds what is admissible: "ready", how many nodes of the answer
        must be said before this one can; "prefix", a number for the tokens of the name before this one; and
        "length", the places of an answer at its first place.
        """
        return pack(
            partial(self._draw, split=split),
            Stream.of(index, seed=seed, split=split),
            seq_len=self.seq_len,
            answers=self.answers,
            instances=self._instances(split),
        )

    def _draw(self, stream: Stream, split: Split) -> Instances:
        s, device = self.settings, stream.key.device
        nodes = draw_size(stream.child("nodes"), s.nodes, split)
        names, length = draw_names(
            stream.child("names"), s.nodes, letters=s.letters, shortest=s.shortest, longest=s.longest
        )
        mixed = shuffle_first(stream.child("mixed"), nodes, s.nodes)
        names, length = NAMES + names.take_along_dim(mixed[:, :, None], dim=1), length.gather(1, mixed)
        graph = draw_dependencies(stream.child("graph"), nodes, s.nodes, s.query)

        # all edges of a graph in random order, before the places for edges that it does not have
        parent = graph.parents.flatten(1)
        child = torch.arange(s.nodes, device=device).repeat_interleave(DEGREE).expand_as(parent)
        unused = (parent < 0).to(torch.int64) << 32
        order = (stream.child("edges").bits(parent.shape[1]) + unused).argsort(dim=1, stable=True)
        order = order[:, : self._edges]
        edges = torch.stack([parent.gather(1, order), child.gather(1, order)], dim=2).flatten(1)

        def special(token: int) -> tuple[Tensor, Tensor]:
            one = torch.ones_like(nodes)
            return pad(token * one[:, :, None], (0, s.longest - 1)), one

        def named(node: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
            """Return the names of nodes [B, M], and their lengths; -1 is no node."""
            known = node.clamp(min=0)
            return names.take_along_dim(known[:, :, None], dim=1), length.gather(1, known) * used

        # END follows the last node of the answer
        size = graph.size
        step = torch.arange(s.nodes + 1, device=device)
        due, due_length = named(pad(graph.order, (0, 1)), step < size)
        end = step == size
        due = torch.where(end[:, :, None], special(END)[0], due)
        due_length = torch.where(end, 1, due_length)
        ready = torch.where(end, size, pad(graph.ready, (0, 1)))

        pieces = [
            special(BEGIN),
            named(edges, (edges >= 0) & (parent.gather(1, order) >= 0).repeat_interleave(2, dim=1)),
            special(QUERY),
            named(graph.query, torch.ones_like(nodes)),
            special(ANSWER),
            (due, due_length),
        ]
        words, lengths = (torch.cat(x, dim=1) for x in zip(*pieces, strict=True))
        inputs, begins = write_words(words, lengths)

        token = torch.arange(s.longest, device=device)
        used = token < due_length[:, :, None]
        positions = begins[:, -(s.nodes + 1) :, None] - 1 + token
        # tokens of the name before each, as a number
        base = 2 * s.letters + 1
        spelt = (due - NAMES + 1) * constant(tuple(base**place for place in range(s.longest)), device)
        shown = {"ready": ready, "step": step.expand_as(ready), "size": size.expand_as(ready)}
        each = {name: (x[:, :, None] * used).flatten(1) for name, x in shown.items()}
        places = due_length.sum(dim=1, keepdim=True)
        first = (step == 0)[:, None] & (token == 0)
        last = begins[:, -(s.nodes + 1) :].gather(1, size) - 1
        return Instances(
            inputs,
            lengths.sum(dim=1),
            positions.flatten(1),
            due.where(used, IGNORE).flatten(1),
            {"step": each["step"], "size": each["size"]},
            {
                "ready": each["ready"],
                "prefix": ((spelt.cumsum(dim=2) - spelt) * used).flatten(1),
                "length": places * first.flatten(),
            },
            last.expand(-1, used[0].numel()),
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return how often tokens are admissible, and "exact": how often all of an answer are."""
        admissible = self._admissible(batch, prediction.answers)
        judged = prediction._replace(answers=batch.targets.where(admissible, IGNORE - 1))
        return super().means(batch, judged) | {
            "exact": exact_match(batch, judged, length=batch.facts["length"])
        }

    def _admissible(self, batch: Batch, answers: Tensor) -> Tensor:
        """Return whether answers [B, N] go on with a node that can be said at their step, or end.

        It is some place's own target: one of the same instance, not before this step, that is ready.
        """
        facts = {**batch.facts, "step": batch.slices["step"], "target": batch.targets}
        other = {name: x[:, None] for name, x in facts.items()}
        found = []
        for some in (slice(first, first + AT_ONCE) for first in range(0, self.answers, AT_ONCE)):
            one = {name: x[:, some, None] for name, x in facts.items()}
            fits = batch.is_answer[:, None] & (answers[:, some, None] == other["target"])
            for name in ("instance", "prefix"):
                fits = fits & (one[name] == other[name])
            fits = fits & (other["ready"] <= one["step"]) & (one["step"] <= other["step"])
            found.append(fits.any(dim=2))
        return torch.cat(found, dim=1)

    @property
    def writing(self) -> Writing:
        """The likeliest tokens, as many as the longest answer has."""
        return Writing(self.settings.nodes * self.settings.longest + 1, END, drawn=False)

    def prompts(self, batch: Batch) -> Tensor:
        """Return the tokens of each row's first instance up to `ANSWER`."""
        return 1 + (batch.inputs == ANSWER).int().argmax(dim=1)

    def judge(self, batch: Batch, written: Tensor) -> Tensor:
        """Tell which answers name all that is needed and nothing else, each once and after its parents."""
        rows = [read_instances(row, self.settings)[0] for row in written.tolist()]
        return torch.tensor([is_right(first) for first in rows], device=written.device)

    def solve(self, batch: Batch) -> Tensor:
        """Search upwards from the query; then say any node that can be said, the smallest name."""
        answers = torch.zeros_like(batch.inputs)
        for row, tokens in enumerate(batch.inputs.tolist()):
            for instance in read_instances(tokens, self.settings):
                for at, token in admissible_answer(instance):
                    answers[row, at] = token
        return answers.gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the edges of the first graph, its question and the answer."""
        read = read_instances(batch.inputs[row].tolist(), self.settings)
        edges, query, answer, said = read[0]

        def say(name: Name) -> str:
            return " ".join(str(token) for token in name)

        listed = join_examples([f"{say(x)} > {say(y)}" for x, y in edges], most=24, between=", ")
        nodes = [say(word) for word in takewhile(lambda word: word != (END,), (word for _, word in said))]
        more = f" {len(read) - 1} more in the row." if len(read) > 1 else ""
        return (
            f"A graph of {len(edges)} edges from parents to children: {listed}. From position {answer} on all"
            f" that {say(query)} depends on is due, and {say(query)}, in this order or another:"
            f" {join_examples(nodes, most=24, between=', ')}; then token {END}.{more}"
        )

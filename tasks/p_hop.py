"""p-hop induction: lookups that each need the result of the last."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.random import Stream


class PHopSettings(Settings):
    """Settings: length of the sequence, and number of hops."""

    seq_len: int = Field(64, ge=4, description="length of a sequence")
    alphabet: int = Field(4, ge=3, description="symbols")
    hops: int = Field(2, ge=1, description="hops to the answer")
    varied: bool = Field(
        False,
        description=(
            "each sequence asks for some number of hops from 1 to hops and says in its first token for how"
            " many"
        ),
    )
    questions: int = Field(
        1,
        ge=1,
        description=(
            "how many answers are due: at the last token, and at the places that the first hops from there"
            " reach"
        ),
    )
    gap: int = Field(3, ge=2, description="tokens that every hop goes back at least")
    beyond: int = Field(
        0, ge=0, description="further hops that are laid out behind the answer and that nobody asks for"
    )

    @property
    def chain(self) -> int:
        """Hops that are laid out."""
        return self.hops + self.questions - 1 + self.beyond

    @model_validator(mode="after")
    def _possible(self) -> Self:
        needed = self.gap * self.chain + 2 + self.varied
        if needed > self.seq_len:
            raise ValueError(
                f"{self.chain} hops (hops + questions - 1 + beyond) of at least {self.gap} tokens each need a"
                f" seq_len of at least {needed}; {self.seq_len} is too short"
            )
        return self


class PHop(Task):
    """Jumping p times to the symbol after the last occurrence of this one, which symbol is reached?

    One hop goes from a token to the one that followed its symbol's previous occurrence. At the last token the
    symbol that p hops reach is due. The result of each hop must be looked up in turn, which needs depth. It
    does not tell how much a model holds, since there are few symbols.

    Layout: a chain of hops to random places is laid out from the end backwards, no two adjacent symbols alike
    (a hop would stay where it is), and between its places stands anything that does not cut a hop short, so
    that all hops are defined.

    Chance: the likeliest symbol after p hops, from the symbol that asks alone.

    Sanford, Hsu & Telgarsky 2024, arXiv:2402.09268, whose first token says how many hops (`varied`). The
    generator with a laid-out chain and the published settings are those of Saunshi et al. 2025,
    arXiv:2502.17416. Published chains end at the answer, which leaves a trace: a linear map of the tokens
    gets 35 % of answers after 16 hops right and 40 % after 32. If `beyond` lets the chain go on as far again,
    it gets only 25 %.
    """

    name = "p_hop"
    skill = "reason"
    Settings = PHopSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two hops, asked at eight places of 64 tokens",
            task={"hops": 2, "questions": 8, "beyond": 4},
            protocol={"lr": 3e-3, "tokens": 1_638_400},
        ),
        "quick-varied": Preset(
            "one to four hops, asked at eight places of 64 tokens",
            task={"hops": 4, "varied": True, "questions": 8, "beyond": 2},
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        **{
            f"looped-{hops}": Preset(
                f"{hops} hops in 256 tokens, 200,000 steps as published, where one layer reached 49 %, two"
                f" {two} %, one looped six times over 99 %",
                task={"seq_len": 256, "hops": hops},
                model={"layers": 6},
                protocol={"tokens": 200_000 * 32 * 256},
            )
            for hops, two in ((16, 69), (32, 59))
        },
        "beyond-16": Preset(
            "as looped-16, and a chain that goes on for 16 hops more, so that its end does not tell",
            task={"seq_len": 256, "hops": 16, "beyond": 16},
            model={"layers": 6},
            protocol={"tokens": 200_000 * 32 * 256},
        ),
    }

    settings: PHopSettings

    @property
    def io(self) -> IO:
        """The symbols, then, with `varied`, the numbers of hops."""
        vocab = self.settings.alphabet + self.settings.hops * self.settings.varied
        return IO(vocab, vocab)

    @property
    def answers(self) -> int:
        """One per question."""
        return self.settings.questions

    def chance(self) -> float:
        """Return the accuracy of a guess that sees only the symbol that asks.

        No symbol follows itself in the chain, so p hops return to it with a probability other than 1 /
        alphabet.
        """
        s = self.settings
        counts = range(1, s.hops + 1) if s.varied else [s.hops]
        returns = [(1 + (s.alphabet - 1) * (-1 / (s.alphabet - 1)) ** count) / s.alphabet for count in counts]
        return sum(max(p, (1 - p) / (s.alphabet - 1)) for p in returns) / len(returns)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        hops: their number. distance: tokens from the place that is reached to where the answer is due.
        """
        return {"hops": self.settings.hops + 1, "distance": self.settings.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples. Place 0 of the chain is the last token, place k is where k hops lead.

        Symbol k of the chain stands right after symbol k-1.
        """
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        first = int(s.varied)
        length, hop = s.seq_len - first, torch.arange(s.chain, device=device)
        # places, were every hop shorter by gap - 1 and the first token left out
        free = length - 2 - (s.gap - 1) * s.chain
        squeezed = stream.child("places").permutation(free)(hop).sort(dim=1, descending=True).values
        last = torch.full_like(index[:, None], length - 1)
        places = torch.cat([last, squeezed + 1 + (s.gap - 1) * (s.chain - 1 - hop)], dim=1)
        step = torch.cat(
            [
                stream.child("first").integers(1, below=s.alphabet),
                1 + stream.child("steps").integers(s.chain, below=s.alphabet - 1),
            ],
            dim=1,
        )
        symbols = step.cumsum(dim=1) % s.alphabet

        behind = (
            torch.zeros(len(index), length, dtype=torch.int64, device=device)
            .scatter(1, places[:, 1:], 1)
            .cumsum(dim=1)
        )
        crossed = behind > 0  # by the hop from the next place of the chain, whose symbol must not stand here
        draw = stream.child("between").integers(length, below=s.alphabet - crossed.long())
        between = torch.where(crossed, symbols.gather(1, s.chain - behind) + 1 + draw, draw) % s.alphabet
        tokens = between.scatter(1, places, symbols).scatter(1, places[:, 1:] - 1, symbols[:, :-1])

        hops = (
            stream.child("hops").integers(1, below=s.hops) + 1 if s.varied else torch.full_like(last, s.hops)
        )
        inputs = torch.cat([s.alphabet - 1 + hops, tokens], dim=1) if s.varied else tokens
        asked, reached = hop[: s.questions].expand(len(index), -1), hop[: s.questions] + hops
        at = places.gather(1, asked)
        slices = {"hops": hops.expand_as(at), "distance": at - places.gather(1, reached)}
        return Batch(inputs, at + first, symbols.gather(1, reached), slices)

    def _next_places(self, inputs: Tensor) -> Tensor:
        """Return the place right after the previous occurrence of each place's symbol [B, T].

        Without an earlier occurrence it is the first place.
        """
        after = torch.arange(1, inputs.shape[1] + 1, device=inputs.device)
        hop = torch.zeros_like(inputs)
        for symbol in range(self.settings.alphabet):
            here = inputs == symbol
            latest = torch.where(here, after, 0).cummax(dim=1).values
            hop[:, 1:] = torch.where(here[:, 1:], latest[:, :-1], hop[:, 1:])
        return hop

    def _number_of_hops(self, inputs: Tensor) -> Tensor:
        """Return how many hops are asked for [B or 1, 1]."""
        s = self.settings
        return inputs[:, :1] - s.alphabet + 1 if s.varied else inputs.new_full((1, 1), s.hops)

    def solve(self, batch: Batch) -> Tensor:
        """Hop as often as is asked for, one by one."""
        hop, asked, at = self._next_places(batch.inputs), self._number_of_hops(batch.inputs), batch.positions
        for count in range(self.settings.hops):
            at = torch.where(count < asked, hop.gather(1, at), at)
        return batch.inputs.gather(1, at)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the hops from the last token one by one, then all answers."""
        inputs = batch.inputs[row : row + 1]
        tokens, hop, asked = (
            inputs[0].tolist(),
            self._next_places(inputs)[0].tolist(),
            int(self._number_of_hops(inputs)),
        )
        at, hops = int(batch.positions[row, 0]), []
        for _ in range(asked):
            hops.append(f"{tokens[at]} at {at} stood last at {hop[at] - 1}, before {tokens[hop[at]]}")
            at = hop[at]
        shown = "; ".join(hops[:8]) + ("; and so on" if len(hops) > 8 else "")
        says = f", as its first token says ({tokens[0]})" if self.settings.varied else ""
        due = sorted(zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True))
        answers = ", ".join(f"{target} at position {position}" for position, target in due[-16:])
        return (
            f"{asked} {'hop is' if asked == 1 else 'hops are'} asked for{says}. From the end: {shown}. The"
            f" answers due: {answers}."
        )

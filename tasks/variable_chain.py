"""Variables that stand for variables."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT, Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import most_common_share
from linbench.tasks.blocks.slots import lay_out, read_statements, statement_slots
from linbench.tasks.random import Stream

_IS, _ASK, _NAMES = 1, 2, 3
_STATEMENT, _QUESTION = 3, 2


class VariableChainSettings(Settings):
    """Settings: number of variables, and how they refer to each other."""

    seq_len: int = Field(64, ge=4, description="length of a sequence; where nothing is said, 0")
    chains: int = Field(4, ge=1, description="constants, each with a chain of variables of its own")
    hops: int = Field(
        2,
        ge=1,
        description=(
            "links of a chain of hops + 1 variables: one is the constant, each other one is the"
            " variable before it"
        ),
    )
    questions: int = Field(
        4, ge=1, description="times that a variable is asked for, at the end, each time any of them"
    )
    order: Literal["topological", "shuffled", "reversed"] = Field(
        "shuffled",
        description=(
            "order of the statements of a chain: each after the one it refers to, in any order, or"
            " each before it; chains interleave at random"
        ),
    )
    names: int = Field(64, ge=1, description="tokens that name variables")
    values: int = Field(64, ge=1, description="tokens that are constants")
    negations: bool = Field(
        False,
        description=(
            "each link is, with probability 1/2, the negation of the variable before it; the constants are"
            " the two bits, and variables with at least one hop are asked for"
        ),
        json_schema_extra={ABSENT: False},
    )

    @property
    def variables(self) -> int:
        """Variables of all chains."""
        return self.chains * (self.hops + 1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.variables > self.names:
            raise ValueError(
                f"{self.chains} chains of {self.hops + 1} variables need {self.variables} names; there are"
                f" {self.names}"
            )
        if self.negations:
            if self.values != 2:
                raise ValueError(f"negations are of bits, which are values = 2, not {self.values}")
        elif self.chains == 1:
            raise ValueError(
                "chains must be at least 2, not 1, unless there are negations; the constant of a single chain"
                " is always the answer"
            )
        elif self.chains > self.values:
            raise ValueError(f"{self.chains} chains need as many constants; there are {self.values} values")
        needed = _STATEMENT * self.variables + _QUESTION * self.questions
        if needed > self.seq_len:
            raise ValueError(
                f"{self.variables} statements of {_STATEMENT} tokens and {self.questions} questions of"
                f" {_QUESTION} need a seq_len of at least {needed}; {self.seq_len} is too short"
            )
        return self


class VariableChain(Task):
    """If a variable is what another one is, and so on down to a constant, what is its value?

    Statements `x = 7` and `y = x` make chains, and `? y` asks for the constant at the end of one. In
    topological order each variable can be replaced by its constant at once. In shuffled or reversed order the
    chain must be followed when it is asked for. It does not tell of overwriting, since each variable is
    assigned once.

    Layout: there is one chain for each constant, all equally long, and questions at any number of hops.
    "wrong_chain" is how often another chain's constant is named, "partial_hop" how often a variable on the
    way, so that errors of holding and of following can be told apart. With `negations` constants are bits,
    each link may say `y = not x`, and there is no "wrong_chain".

    Chance: any constant of the sequence; with negations the more common bit of all variables that may be
    asked for.

    After variable tracking of RULER, arXiv:2404.06654: one chain of 4 hops in filler text, asked for all of
    its variables. With one chain the only constant in sight would answer our question, so there are always
    two chains or more. With `negations` it is LEGO, Zhang et al. 2022, arXiv:2206.04301, in the form of
    zoology, which has one chain of 3 variables, asks for the second, and labels all tokens in training. The
    number of negations alone tells the last variable, so here any number of hops is asked for.
    """

    name = "variable_chain"
    skill = "reason"
    Settings = VariableChainSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "4 chains of up to 2 hops, each statement after the one it refers to",
            task={"order": "topological"},
            protocol={"lr": 3e-3, "tokens": 1_638_400},
        ),
        "quick-shuffled": Preset("the same in any order", protocol={"lr": 3e-3, "tokens": 1_638_400}),
        "ruler-4": Preset(
            "RULER's 4 hops, in 4 chains with room between the statements",
            task={"seq_len": 256, "hops": 4, "questions": 8},
            protocol={"tokens": 50_000_000},
        ),
        "hops-8": Preset(
            "4 chains of up to 8 hops",
            task={"seq_len": 256, "hops": 8, "questions": 8},
            protocol={"tokens": 50_000_000},
        ),
        **{
            f"lego-{variables}": Preset(
                f"one chain of {variables} bits with negations, its statements in any order",
                task={
                    "seq_len": _STATEMENT * variables + _QUESTION,
                    "chains": 1,
                    "hops": variables - 1,
                    "questions": 1,
                    "names": 26,
                    "values": 2,
                    "negations": True,
                },
                protocol={"tokens": 5_000_000},
            )
            for variables in (6, 12)
        },
    }

    settings: VariableChainSettings

    @property
    def io(self) -> IO:
        """Filler, `=`, `?`, names and constants, and with negations `= not`."""
        return IO(self._vocab, self._vocab)

    @property
    def _vocab(self) -> int:
        return self._not + self.settings.negations

    @property
    def _not(self) -> int:
        """Token of a negation."""
        return _NAMES + self.settings.names + self.settings.values

    @property
    def answers(self) -> int:
        """One per question."""
        return self.settings.questions

    @property
    def _statements_length(self) -> int:
        """Tokens before the first question."""
        return self.settings.seq_len - _QUESTION * self.settings.questions

    def chance(self) -> float:
        """Return 1 / chains: any constant of the sequence; or the share of the more common bit."""
        s = self.settings
        return most_common_share(s.chains * s.hops, 2) if s.negations else 1 / s.chains

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        hops: from the variable to the one that is the constant. distance: tokens from the variable's own
        statement to where it is asked for.
        """
        return {"hops": self.settings.hops + 1, "distance": self.settings.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        Variable i belongs to chain i // (hops + 1) and is number i % (hops + 1) from the constant. The facts
        are "constants" [B, N, chains - 1], those of the other chains, and "way" [B, N, hops], the variables
        hopped to, then `IGNORE`.
        """
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        chain, variable, per_chain = (
            torch.arange(s.chains, device=device),
            torch.arange(s.variables, device=device),
            s.hops + 1,
        )
        names = _NAMES + stream.child("names").permutation(s.names)(variable)
        held = stream.child("values")
        bits = held.integers(s.chains, below=2) if s.negations else held.permutation(s.values)(chain)
        constants = _NAMES + s.names + bits
        meaning = torch.where(
            variable % per_chain == 0, constants.repeat_interleave(per_chain, dim=1), names.roll(1, dims=1)
        )
        negated = stream.child("negations").integers(s.variables, below=1 + s.negations)
        negated = negated * (variable % per_chain > 0)
        said = torch.where(negated > 0, self._not, _IS)
        statements = torch.stack([names, said, meaning], dim=2)
        slots = stream.child("slots").permutation(statement_slots(self._statements_length, _STATEMENT))(
            variable
        )
        if s.order != "shuffled":
            slots = (
                slots.view(-1, s.chains, per_chain)
                .sort(dim=2, descending=s.order == "reversed")
                .values.flatten(1)
            )

        asked = stream.child("questions").integers(s.questions, below=s.variables - s.negations * s.chains)
        if s.negations:  # not for one that is the constant
            asked = 1 + asked + asked // s.hops
        names_asked = names.gather(1, asked)
        questions = torch.stack([torch.full_like(asked, _ASK), names_asked], dim=2).flatten(1)
        inputs = torch.cat([lay_out(statements, slots, length=self._statements_length), questions], dim=1)
        positions = (
            self._statements_length + 1 + _QUESTION * torch.arange(s.questions, device=device)
        ).repeat(len(index), 1)

        hops, of_chain = asked % per_chain, asked // per_chain
        back = variable[1:per_chain]
        others = (of_chain[:, :, None] + chain[1:]) % s.chains
        way = torch.where(
            back <= hops[:, :, None],
            names.gather(1, (asked[:, :, None] - back).clamp(min=0).flatten(1)).view(*asked.shape, s.hops),
            IGNORE,
        )
        facts = {"constants": constants.gather(1, others.flatten(1)).view(others.shape), "way": way}
        turns = negated.view(-1, s.chains, per_chain).cumsum(dim=2).flatten(1).gather(1, asked)
        targets = constants.gather(1, of_chain)
        if s.negations:
            targets = self._turn(targets, turns)
        stated = self._statements_length % _STATEMENT + _STATEMENT * slots.gather(1, asked)
        return Batch(
            inputs,
            positions,
            targets,
            {"hops": hops, "distance": positions - stated},
            facts,
        )

    def _turn(self, bits: Tensor, times: Tensor) -> Tensor:
        """Return tokens of bits, negated so many times."""
        zero = _NAMES + self.settings.names
        return zero + (bits - zero + times) % 2

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "wrong_chain", constants of other chains, and "partial_hop", variables on the way."""
        kinds = (
            {"partial_hop": "way"}
            if self.settings.negations
            else {"wrong_chain": "constants", "partial_hop": "way"}
        )
        answers = prediction.answers[:, :, None]
        named = {kind: (answers == batch.facts[fact]).any(dim=2) for kind, fact in kinds.items()}
        return super().means(batch, prediction) | {kind: WeightedMean(x) for kind, x in named.items()}

    def solve(self, batch: Batch) -> Tensor:
        """Look up each name, and what it is said to be, until it is no name."""
        said = read_statements(batch.inputs[:, : self._statements_length], _STATEMENT)
        empty = torch.zeros(len(said), self._vocab, dtype=torch.int64, device=said.device)
        meaning = empty.scatter(1, said[:, :, 0], said[:, :, 2])
        negated = empty.scatter(1, said[:, :, 0], (said[:, :, 1] == self._not).long())
        answer = batch.inputs.gather(1, batch.positions)
        turns = torch.zeros_like(answer)
        for _ in range(self.settings.variables):
            turns += negated.gather(1, answer)
            answer = torch.where(answer < _NAMES + self.settings.names, meaning.gather(1, answer), answer)
        return self._turn(answer, turns) if self.settings.negations else answer

    def explain(self, batch: Batch, row: int) -> str:
        """Return the statements in their order, then the questions."""
        said = [
            f"{self._word(x)} = {'not ' if verb == self._not else ''}{self._word(y)}"
            for x, verb, y in read_statements(
                batch.inputs[row : row + 1, : self._statements_length], _STATEMENT
            )[0].tolist()
            if x
        ]
        statements = ", ".join(said[:60]) + (", ..." if len(said) > 60 else "")
        due = zip(
            batch.positions[row].tolist(),
            batch.slices["hops"][row].tolist(),
            batch.targets[row].tolist(),
            strict=True,
        )
        tokens = batch.inputs[row].tolist()
        asked = "; ".join(
            f"at position {at} for {self._word(tokens[at])}, which is {self._word(target)} ({hops} hops)"
            for at, hops, target in list(due)[:12]
        )
        first = _NAMES + self.settings.names
        return (
            f"It is said that {statements}. It is asked {asked}. Token {_NAMES} is x0, token {first} is 0,"
            " filler stands between statements."
        )

    def _word(self, token: int) -> str:
        number = token - _NAMES
        return f"x{number}" if number < self.settings.names else str(number - self.settings.names)

"""Arithmetic in prefix notation."""

from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import pad

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Preset, Split, Task
from linbench.tasks.blocks.packing import Instances, Pack, instances_needed, pack
from linbench.tasks.blocks.playground import published
from linbench.tasks.blocks.prefix_expressions import OPERATORS, apply, draw_expressions, value_shares
from linbench.tasks.random import Stream

AROUND = 5
"""Tokens of an instance beside two for every operator: `BEGIN`, `LEN`, one number, `ANS` and the value."""


class ManoSettings(Settings):
    """Settings: modulus, number of operators, and length."""

    seq_len: int = Field(16, ge=7, description="tokens of a row")
    modulus: int = Field(7, ge=2, le=1 << 15, description="numbers are 0 to modulus - 1")
    operators: int = Field(
        3,
        ge=1,
        le=256,
        description="L, operators of an expression in tests; in training 1 to L, all equally often",
    )
    synonyms: int = Field(
        1,
        ge=1,
        le=16,
        description="tokens that mean the same, for every operator and every token that is no number",
    )
    pack: Pack = False

    @property
    def longest(self) -> int:
        """Return the tokens of an instance with all operators."""
        return 2 * self.operators + AROUND

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.longest > self.seq_len:
            raise ValueError(
                f"an expression with operators = {self.operators} takes {self.longest} tokens with its value,"
                f" so seq_len must be at least that, not {self.seq_len}"
            )
        return self


class _Vocabulary(NamedTuple):
    """First ids. `LEN` and `ANS` have one meaning for every number of operators, from 1 on.

    A meaning has `synonyms` ids that follow one another; numbers have one each. Padding is 0.
    """

    begin: int
    length: int
    answer: int
    operator: int
    number: int
    end: int
    synonyms: int

    @classmethod
    def of(cls, s: ManoSettings) -> Self:
        """Return the ids of settings."""
        length, answer, operator, number = (
            1 + s.synonyms * meanings
            for meanings in (1, 1 + s.operators, 1 + 2 * s.operators, 4 + 2 * s.operators)
        )
        return cls(1, length, answer, operator, number, number + s.modulus, s.synonyms)

    def operators_said(self, token: Tensor) -> Tensor:
        """Return the number of operators that an `ANS` tells."""
        return 1 + (token - self.answer) // self.synonyms


def _published(operators: int, steps: int) -> Preset:
    given = published(steps=steps, batch_size=64, seq_len=1024, lr=3e-4)
    return Preset(
        f"2512.17351, up to {operators} operators modulo 23; one of its four rates, and a cosine down to 0,"
        " not to a tenth",
        task={"seq_len": 1024, "modulus": 23, "operators": operators, "synonyms": 2, "pack": True},
        model=given["model"],
        protocol={**given["protocol"], "weight_decay": 0.1},
    )


class Mano(Task):
    """Can the value of an expression in prefix notation be computed, modulo a small number?

    An operator stands before its two operands, each of which may be an expression, so the first operators
    wait for what all others give. The tables of sum, difference and product are the same in every example:
    the weights must hold them, and the state only what is pending. It does not tell at which step a wrong
    value went wrong.

    Layout: `BEGIN LEN-l`, the expression, `ANS-l`, and its value. An expression with l operators is a uniform
    operator of + - *, a first operand with a uniform number of the l - 1 other operators, and a second
    operand with the rest; one without operators is a uniform number. In training l is uniform from 1 to L,
    and every next token is due. In validation and tests l = L, and only values are due. With `pack` instances
    follow one another in a row, and the last one is cut off. With `synonyms` every token but numbers is drawn
    from several that mean the same.

    Chance: always 0, since products favour it.

    Allen-Zhu 2025 (Physics of Language Models, part 4.1), arXiv:2512.17351. Two synonyms are those of the
    released code; the paper has none. Where there are few expressions of a form with L operators, half of
    them are for training and a quarter for validation and tests each; published sizes are not concerned.
    Published scores do not always grow with the model, so run three seeds at least.
    """

    name = "mano"
    skill = "track"
    Settings = ManoSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two minutes on a laptop: up to 3 operators modulo 2, where sum and difference are one, with"
            " three layers",
            task={"modulus": 2, "seq_len": 64, "pack": True},
            model={"layers": 3},
            protocol={"lr": 3e-3, "batch_size": 4, "tokens": 1_200_000},
        ),
        "quick-3": Preset(
            "up to 3 operators modulo 3, with three layers; learned in part in four minutes on a laptop",
            task={"modulus": 3, "seq_len": 64, "pack": True},
            model={"layers": 3},
            protocol={"lr": 3e-3, "batch_size": 8, "tokens": 2_000_000},
        ),
        "quick-7": Preset(
            "up to 3 operators modulo 7; needs more than these tokens to be learned",
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "quick-4": Preset(
            "up to 4 operators modulo 7; harder than quick",
            task={"operators": 4},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        **{
            f"mano-{operators}": _published(operators, steps)
            for operators, steps in ((10, 80_000), (13, 95_000), (16, 110_000))
        },
    }

    settings: ManoSettings

    @property
    def io(self) -> IO:
        """Padding, `BEGIN`, `LEN` and `ANS` for each number of operators, operators and numbers."""
        return IO(self._ids.end, self._ids.end)

    @property
    def answers(self) -> int:
        """Every token that has a next one in its instance; tests use those of the values alone."""
        s = self.settings
        return s.seq_len if s.pack else s.longest - 1

    @property
    def _ids(self) -> _Vocabulary:
        return _Vocabulary.of(self.settings)

    def chance(self) -> float:
        """Return how often the value is 0, the commonest, with L operators."""
        return float(value_shares(self.settings.modulus, self.settings.operators).max())

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more expressions in a row."""
        return {"seq_len": times * self.seq_len, "pack": True}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        operators: l. depth: most operators that stand one within the other.
        """
        return {"operators": self.settings.operators + 1, "depth": self.settings.operators + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; those of training have a label at every token."""
        s = self.settings
        lengths = tuple((2 * count + AROUND, 1 / s.operators) for count in range(1, s.operators + 1))
        needed = instances_needed(lengths if split == "train" else ((s.longest, 1.0),), s.seq_len)
        return pack(
            partial(self._draw, split),
            Stream.of(index, seed=seed, split=split),
            seq_len=s.seq_len,
            answers=self.answers,
            instances=needed if s.pack else 1,
        )

    def _draw(self, split: Split, stream: Stream) -> Instances:
        s, ids, device = self.settings, self._ids, stream.key.device
        operators = torch.full((len(stream.key), 1), s.operators, device=device)
        if split == "train":
            operators = 1 + stream.child("operators").integers(1, below=s.operators)
        drawn = draw_expressions(stream, operators, most=s.operators, modulus=s.modulus, split=split)
        same = stream.child("synonyms").integers(s.longest, below=s.synonyms)
        operator = ids.operator + s.synonyms * drawn.symbols + same[:, 2:-2]
        expression = torch.where(drawn.is_operator, operator, ids.number + drawn.symbols)
        at_answer = 2 * operators + AROUND - 2
        inputs = pad(expression.where(drawn.used, 0), (2, 2))
        told = s.synonyms * (operators - 1)
        for place, token in (
            (torch.zeros_like(operators), ids.begin + same[:, :1]),
            (torch.ones_like(operators), ids.length + told + same[:, 1:2]),
            (at_answer, ids.answer + told + same[:, -2:-1]),
            (at_answer + 1, ids.number + drawn.value),
        ):
            inputs = inputs.scatter(1, place, token)
        at = torch.arange(s.longest - 1, device=device).expand(len(inputs), -1)
        due = at <= at_answer if split == "train" else at == at_answer
        return Instances(
            inputs,
            at_answer[:, 0] + 2,
            at,
            inputs[:, 1:].where(due, IGNORE),
            {"operators": operators.expand_as(at), "depth": drawn.depth.expand_as(at)},
        )

    def solve(self, batch: Batch) -> Tensor:
        """Read every row from its end with a stack: an operator takes the two topmost values.

        The value of an expression is then on top at its first token. Places that training alone asks for get
        the number 0.
        """
        s, ids = self.settings, self._ids
        stack = torch.zeros(len(batch.inputs), s.operators + 4, dtype=torch.int64, device=batch.inputs.device)
        height = torch.zeros_like(stack[:, :1])
        values = []
        for token in torch.split(batch.inputs.flip(1), 1, dim=1):
            number, operator = token >= ids.number, (token >= ids.operator) & (token < ids.number)
            first, second = (stack.gather(1, (height - back).clamp(min=0)) for back in (0, 1))
            applied = apply((token - ids.operator) // s.synonyms, first, second, s.modulus)
            height = (height + number.long() - operator.long()).clamp(0, stack.shape[1] - 1)
            top = torch.where(number, token - ids.number, torch.where(operator, applied, first))
            stack = stack.scatter(1, height, top)
            values.append(top)
            # what stands after ANS belongs to no expression
            height = torch.where((token >= ids.answer) & (token < ids.operator), 0, height)
        asked = batch.inputs.gather(1, batch.positions)
        begins = batch.positions - 2 * ids.operators_said(asked) - 1
        found = torch.cat(values, dim=1).flip(1).gather(1, begins.clamp(0, s.seq_len - 1))
        return ids.number + torch.where((asked >= ids.answer) & (asked < ids.operator), found, 0)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the first expression, and its value."""
        ids, tokens = self._ids, batch.inputs[row].tolist()
        at = next(place for place, token in enumerate(tokens) if ids.answer <= token < ids.operator)
        due = (
            "after every token the next one is due" if batch.positions[row, 0] == 0 else "only values are due"
        )
        said, value = " ".join(map(self._say, tokens[: at + 1])), self._say(tokens[at + 1])
        return (
            f"{said} {value}: modulo {self.settings.modulus} the value is {value}, due at position {at}."
            f" Here {due}."
        )

    def _say(self, token: int) -> str:
        ids = self._ids
        if token >= ids.number:
            return str(token - ids.number)
        if token >= ids.operator:
            return OPERATORS[(token - ids.operator) // ids.synonyms]
        for name, first in (("ANS", ids.answer), ("LEN", ids.length)):
            if token >= first:
                return f"{name}-{1 + (token - first) // ids.synonyms}"
        return "BEGIN"

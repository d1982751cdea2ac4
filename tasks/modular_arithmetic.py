"""Modular arithmetic."""

from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.expressions import Vocabulary, flat_expressions, nested_expressions
from linbench.tasks.blocks.lengths import Lengths, draw_length
from linbench.tasks.random import Stream


class ModularArithmeticSettings(Lengths):
    """Settings: kind and length of expressions, and the modulus."""

    modulus: int = Field(5, ge=2, description="digits are 0 ... modulus - 1, and so are the answers")
    brackets: bool = Field(
        False,
        description="nested in brackets, with signs; else digits and operators in a row, * before + and -",
    )
    multiplication: bool = Field(True, description="whether * is among the operators")
    min_length: int = Field(
        5,
        ge=3,
        description=(
            "tokens of the shortest sequence, with = and the empty token at which the value is due; odd"
            " without brackets"
        ),
    )
    max_length: int = Field(
        19,
        ge=3,
        description=(
            "tokens of the longest sequence; all lengths between (without brackets, all odd ones) are"
            " equally likely"
        ),
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.brackets and self.max_length < 5:
            raise ValueError(
                f"with brackets no sequence is shorter than 5, so max_length must be at least that, not"
                f" {self.max_length}"
            )
        if not self.brackets and self.min_length == self.max_length and self.max_length % 2 == 0:
            raise ValueError(
                f"without brackets lengths are odd, and there is no odd length from min_length ="
                f" {self.min_length} to max_length = {self.max_length}; change one of them"
            )
        return self


def _grazzi(about: str, **task: Any) -> Preset:
    return Preset(
        f"2411.12537: {about}",
        task=task,
        model={"layers": 3, "d_model": 128, "heads": 4},
        protocol={
            "batch_size": 256,
            "tokens": 100_000 * 256 * task["max_length"],
            "lr": 1e-3,
            "warmup": 0.1,
            "clip": 1.0,
            "test_examples": 8192,
        },
    )


class ModularArithmetic(Task):
    """Can the value of an expression be computed, modulo five or another small number?

    Digits with operators between them end in =, and at the empty token after it the value is due. Without
    brackets, where * comes before + and -, a finite state is enough. With brackets, pending operations must
    be kept as on a stack. Both are hard at lengths beyond those of training. It does not tell which step of a
    wrong answer was wrong.

    Layout: without brackets the state is a sum and the current term; with brackets the depth is not bounded.

    Chance: any digit, the level by which published accuracies are scaled.

    Grazzi et al. 2024, arXiv:2411.12537, after Deletang et al. 2022, arXiv:2207.02098; both vocabularies are
    as published, and as published a bracketed sequence ends with one more empty token and is at least 5 long.
    Products favour 0, the more the shorter: the score `majority` is that of always answering 0. Train,
    validation and test share no expression of a length, or in brackets of a form, that has from 64 or 16 to
    2^24 of them: in brackets only those with a single digit.
    """

    name = "modular_arithmetic"
    version = 2
    skill = "track"
    Settings = ModularArithmeticSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "a few minutes on a laptop: two to nine digits in a row",
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "grazzi": _grazzi(
            "in a row, 3 to 40 tokens; `grazzi-test` has the lengths it is judged by",
            min_length=3,
            max_length=40,
        ),
        "grazzi-test": _grazzi("in a row, 40 to 256 tokens", min_length=40, max_length=256),
        "grazzi-brackets": _grazzi(
            "in brackets, without *, 3 to 40 tokens",
            min_length=3,
            max_length=40,
            brackets=True,
            multiplication=False,
        ),
        "grazzi-brackets-test": _grazzi(
            "in brackets, without *, 40 to 256 tokens",
            min_length=40,
            max_length=256,
            brackets=True,
            multiplication=False,
        ),
        "grazzi-brackets-products": _grazzi(
            "in brackets, with *, 3 to 40 tokens", min_length=3, max_length=40, brackets=True
        ),
        "grazzi-brackets-products-test": _grazzi(
            "in brackets, with *, 40 to 256 tokens", min_length=40, max_length=256, brackets=True
        ),
    }

    settings: ModularArithmeticSettings

    @property
    def io(self) -> IO:
        """Digits, operators, brackets if any, = and the empty token."""
        vocabulary = self.settings.modulus + (7 if self.settings.brackets else 5)
        return IO(vocabulary, vocabulary)

    @property
    def seq_len(self) -> int:
        """Tokens of the longest sequence."""
        return self.settings.max_length

    @property
    def answers(self) -> int:
        """One, the value."""
        return 1

    @property
    def _ids(self) -> Vocabulary:
        return Vocabulary.of(self.settings.modulus, brackets=self.settings.brackets)

    def chance(self) -> float:
        """Return 1 / modulus: any digit, the level by which the published accuracies are scaled.

        Where there are products 0 is likelier, and the best blind guess is the score `majority`.
        """
        return 1 / self.settings.modulus

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with both lengths longer."""
        return self.settings.longer(times)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        length: tokens of the sequence, as in the settings.
        """
        return {"length": self.settings.max_length + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples with one answer."""
        s, ids = self.settings, self._ids
        stream = Stream.of(index, seed=seed, split=split)
        operators = 3 if s.multiplication else 2
        numbers = {"modulus": s.modulus, "operators": operators, "seq_len": s.max_length}
        if s.brackets:
            length = draw_length(stream, s.min_length, s.max_length).clamp(min=5)
            found = nested_expressions(stream, length - 3, longest=s.max_length - 3, split=split, **numbers)
        else:
            shortest, longest = s.min_length // 2 * 2 + 1, (s.max_length - 1) // 2 * 2 + 1
            length = draw_length(stream, shortest, longest, step=2)
            found = flat_expressions(
                stream, length - 2, longest=longest - 2, shortest=shortest - 2, split=split, **numbers
            )
        inputs = found.tokens.scatter(1, found.length, ids.equals)
        return Batch(inputs, found.length + 1, ids.digit + found.value, {"length": length})

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "majority": how often the answer is 0, the accuracy of always saying so."""
        return super().means(batch, prediction) | {"majority": WeightedMean(batch.targets == self._ids.digit)}

    def solve(self, batch: Batch) -> Tensor:
        """Evaluate from the left, up to =."""
        value = (self._nested_value if self.settings.brackets else self._flat_value)(batch.inputs)
        return self._ids.digit + value.gather(1, batch.positions) % self.settings.modulus

    def _flat_value(self, tokens: Tensor) -> Tensor:
        """Return the value of every beginning [B, T], from a sum of terms and the current term."""
        ids = self._ids
        total, term = torch.zeros_like(tokens[:, 0]), torch.zeros_like(tokens[:, 0])
        operator, values = torch.full_like(total, ids.operator), []
        over = torch.zeros_like(total, dtype=torch.bool)
        for token in tokens.unbind(dim=1):
            over = over | (token == ids.equals)
            digit = token - ids.digit
            is_digit, times = (digit >= 0) & ~over, operator == ids.operator + 2
            total = torch.where(is_digit & ~times, total + term, total) % self.settings.modulus
            grown = (
                torch.where(times, term * digit, torch.where(operator == ids.operator, digit, -digit))
                % self.settings.modulus
            )
            term = torch.where(is_digit, grown, term)
            operator = torch.where(is_digit, operator, token)
            values.append(total + term)
        return torch.stack(values, dim=1)

    def _nested_value(self, tokens: Tensor) -> Tensor:
        """Return the value of every beginning [B, T].

        For each open bracket it keeps a value so far and the operator that waits for the next value.
        """
        ids, (rows, length) = self._ids, tokens.shape
        plus, minus = ids.operator, ids.operator + 1
        value = tokens.new_zeros(rows, length + 2)
        waiting = torch.full_like(value, plus)
        depth = tokens.new_zeros(rows, 1)
        negative, after_digit, over = (torch.zeros_like(depth, dtype=torch.bool) for _ in range(3))
        values = []
        for token in torch.split(tokens, 1, dim=1):
            over = over | (token == ids.equals)
            opens, closes, digit = (
                (token == ids.opens),
                (token == ids.closes) & (depth > 0),
                token < self.settings.modulus,
            )
            operator = (token >= plus) & (token < ids.opens)
            given = torch.where(closes, value.gather(1, depth), torch.where(negative, -token, token))
            depth = torch.where(over, depth, depth + opens.long() - closes.long())
            # what is begun starts from nothing
            value.scatter_(1, depth, torch.where(opens & ~over, 0, value.gather(1, depth)))
            waiting.scatter_(1, depth, torch.where(opens & ~over, plus, waiting.gather(1, depth)))
            so_far, pending = value.gather(1, depth), waiting.gather(1, depth)
            applied = torch.where(
                pending == plus, so_far + given, torch.where(pending == minus, so_far - given, so_far * given)
            )
            value.scatter_(
                1, depth, torch.where((digit | closes) & ~over, applied % self.settings.modulus, so_far)
            )
            waiting.scatter_(1, depth, torch.where(operator & after_digit & ~over, token, pending))
            negative = operator & ~after_digit
            after_digit = digit | closes
            values.append(value[:, :1].clone())
        return torch.cat(values, dim=1)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the expression and its value."""
        ids, at = self._ids, int(batch.positions[row, 0])
        signs = {
            ids.operator: "+",
            ids.operator + 1: "-",
            ids.operator + 2: "*",
            ids.equals: " =",
            ids.opens: "(",
            ids.closes: ")",
        }
        said = "".join(signs.get(token, str(token - ids.digit)) for token in batch.inputs[row, :at].tolist())
        target = int(batch.targets[row, 0])
        return (
            f"{said} {target - ids.digit} modulo {self.settings.modulus}. At position {at}, the empty token"
            f" after the sign of equality, the answer is token {target}; what follows is empty as well."
        )

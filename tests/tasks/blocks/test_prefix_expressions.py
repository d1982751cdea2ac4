from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import Split
from linbench.tasks.blocks.prefix_expressions import Expressions, draw_expressions, value_shares
from tests.helpers.tasks import stream

ALPHA = 1e-3
Probability = Callable[..., float]


def draw(
    count: int, operators: int, *, most: int | None = None, modulus: int = 5, split: Split = "train"
) -> Expressions:
    numbers = torch.full((count, 1), operators)
    return draw_expressions(
        stream(count, split=split), numbers, most=most or operators, modulus=modulus, split=split
    )


def written(drawn: Expressions) -> list[list[str]]:
    """Each expression with its numbers as they are and its operators as signs."""
    return [
        ["+-*"[symbol] if sign else str(symbol) for symbol, sign, used in zip(*row, strict=True) if used]
        for row in zip(drawn.symbols.tolist(), drawn.is_operator.tolist(), drawn.used.tolist(), strict=True)
    ]


def read(tokens: list[str]) -> tuple[int, int]:
    """Read an expression off the front of a list; its value, and how deep its operators go."""
    token = tokens.pop(0)
    if token not in "+-*":
        return int(token), 0
    (a, deep_a), (b, deep_b) = read(tokens), read(tokens)
    return {"+": a + b, "-": a - b, "*": a * b}[token], 1 + max(deep_a, deep_b)


@pytest.mark.parametrize(("operators", "most"), [(0, 2), (1, 1), (2, 5), (5, 5), (16, 16)])
def test_expressions_are_whole_and_have_their_values(operators: int, most: int) -> None:
    drawn = draw(50, operators, most=most, modulus=23)
    for row, tokens in enumerate(written(drawn)):
        assert len(tokens) == 2 * operators + 1
        value, depth = read(tokens)
        assert not tokens
        assert int(drawn.value[row]) == value % 23
        assert int(drawn.depth[row]) == depth


def test_first_operands_have_any_number_of_operators_and_symbols_are_uniform(
    chi_squared: Probability,
) -> None:
    """Three operators have five forms: a third of all is balanced, and each other form has a sixth."""
    found = written(draw(6000, 3, most=4))
    shapes = Counter("".join("o" if token in "+-*" else "n" for token in row) for row in found)
    expected = {"ooonnnn": 1, "oonnonn": 2, "onoonnn": 1, "oononnn": 1, "ononon" + "n": 1}
    assert shapes.keys() == expected.keys()
    counts = torch.tensor([shapes[shape] for shape in expected])
    assert chi_squared(counts, 1000.0 * torch.tensor(list(expected.values()))) > ALPHA
    for kinds in ("+-*", "01234"):
        symbols = Counter(token for row in found for token in row if token in kinds)
        each = torch.tensor([symbols[kind] for kind in kinds])
        assert chi_squared(each, torch.full((len(kinds),), float(each.sum()) / len(kinds))) > ALPHA


def test_splits_share_no_expression_of_full_length_where_few_have_a_form() -> None:
    """Forms of 16 to 2^24 expressions are divided; expressions with fewer operators are not."""
    for operators, shared in ((1, False), (2, False)):
        splits = [
            {" ".join(row) for row in written(draw(2000, operators, split=split))}
            for split in ("train", "validation", "test")
        ]
        assert [len(a & b) > 0 for a, b in ((splits[0], splits[1]), (splits[0], splits[2]))] == [shared] * 2
    assert len(splits[0]) > 400
    short = [{" ".join(row) for row in written(draw(2000, 1, most=3, split=s))} for s in ("train", "test")]
    assert short[0] == short[1]
    assert len(short[0]) == 75


@pytest.mark.parametrize(("modulus", "operators"), [(3, 0), (3, 1), (3, 2), (2, 3)])
def test_value_shares_are_those_of_all_expressions(modulus: int, operators: int) -> None:
    def all_values(count: int) -> Tensor:
        """The exact share of each value."""
        if not count:
            return torch.tensor([float(Fraction(1, modulus))] * modulus, dtype=torch.float64)
        shares = torch.zeros(modulus, dtype=torch.float64)
        for first in range(count):
            a, b = all_values(first), all_values(count - 1 - first)
            for x, y in product(range(modulus), repeat=2):
                for value in (x + y, x - y, x * y):
                    shares[value % modulus] += a[x] * b[y] / (3 * count)
        return shares

    assert torch.allclose(value_shares(modulus, operators), all_values(operators))


@pytest.mark.parametrize(
    ("modulus", "operators", "zero"),
    [
        (23, 10, 0.0703),
        (23, 13, 0.0713),
        (23, 16, 0.0721),
        (23, 1, 0.0573),
        (23, 0, 0.0435),
        (7, 3, 0.2017),
        (7, 4, 0.2059),
        (5, 3, 0.2753),
    ],
)
def test_zero_is_as_common_as_published(modulus: int, operators: int, zero: float) -> None:
    shares = value_shares(modulus, operators)
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares[0]) == float(shares.max()) == pytest.approx(zero, abs=5.1e-5)


def test_values_are_as_common_as_they_are_said_to_be(chi_squared: Probability) -> None:
    for operators in (1, 4):
        counts = draw(4000, operators, most=5).value[:, 0].bincount(minlength=5)
        assert chi_squared(counts, 4000 * value_shares(5, operators)) > ALPHA

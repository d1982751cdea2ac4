from collections import Counter
from collections.abc import Callable
from itertools import product
from math import log

import pytest
import torch

from linbench.tasks.blocks.grammar import BEGIN, Grammar, sentences
from linbench.tasks.blocks.published_grammars import GRAMMARS
from tests.helpers.tasks import stream

ALPHA = 1e-3
Probability = Callable[..., float]
SMALL = Grammar.parse("""
8: 5 6 / 6 5 5
9: 6 6 / 5 6

5: 1 2 / 1 1 2 / 2 1
6: 2 1 / 1 2 1 / 1 2
""")
"""Some sentences have several trees: 1 2 1 2 1 is 1 2 and 1 2 1, or 1 2 1 and 2 1."""


def trees(grammar: Grammar) -> dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]]:
    """The probability of every tree, by its sentence, with how many parts end before each of its tokens."""
    rules = {symbol: some for level in grammar.levels for symbol, some in level}
    found: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = {}

    def grown(symbol: int, depth: int) -> list[tuple[float, list[int], list[int]]]:
        """Probabilities, tokens, and at each token but the first how many parts end."""
        if symbol not in rules:
            return [(1.0, [symbol], [])]
        made = []
        for rule in rules[symbol]:
            for parts in product(*(grown(child, depth - 1) for child in rule)):
                p, tokens, ends = 1 / len(rules[symbol]), list[int](), list[int]()
                for number, (share, some, inner) in enumerate(parts):
                    p, tokens = p * share, tokens + some
                    ends += [depth - 1] * (number > 0) + inner
                made.append((p, tokens, ends))
        return made

    for root in grammar.roots:
        for p, tokens, ends in grown(root, len(grammar.levels)):
            found.setdefault(tuple(tokens), []).append((p / len(grammar.roots), (0, *ends)))
    return found


def test_a_text_is_read_as_it_stands() -> None:
    assert SMALL.levels[1] == (
        (5, ((1, 2), (1, 1, 2), (2, 1))),
        (6, ((2, 1), (1, 2, 1), (1, 2))),
    )
    assert (SMALL.roots, SMALL.terminals) == ((8, 9), 2)
    assert SMALL.below(1).roots == (5, 6)


def test_lengths_counts_and_entropy_are_those_of_all_trees() -> None:
    all_trees = [(p, sentence) for sentence, some in trees(SMALL).items() for p, _ in some]
    assert sum(p for p, _ in all_trees) == pytest.approx(1)
    assert SMALL.length() == pytest.approx(sum(p * len(sentence) for p, sentence in all_trees))
    assert SMALL.counts()[2] == pytest.approx(sum(p * sentence.count(2) for p, sentence in all_trees))
    assert SMALL.entropy() == pytest.approx(-sum(p * log(p) for p, _ in all_trees))
    lengths = [len(sentence) for _, sentence in all_trees]
    assert min(SMALL.lengths()[root][0] for root in (8, 9)) == min(lengths)
    assert max(SMALL.lengths()[root][1] for root in (8, 9)) == max(lengths)


def test_sentences_are_drawn_as_often_as_their_trees_say(chi_squared: Probability) -> None:
    drawn = sentences(SMALL, stream(4000), count=1, width=12)
    expected = trees(SMALL)
    counts = Counter(map(tuple, drawn.tokens.tolist()))
    rows = [(BEGIN, *sentence, *[BEGIN] * (11 - len(sentence))) for sentence in expected]
    assert set(counts) <= set(rows)
    shares = torch.tensor([sum(p for p, _ in some) for some in expected.values()])
    often = shares * 4000 > 5
    found = torch.tensor([counts[row] for row in rows])[often]
    assert chi_squared(found, shares[often] / shares[often].sum() * found.sum()) > ALPHA
    for tokens, ended in zip(drawn.tokens.tolist()[:200], drawn.ended.tolist(), strict=False):
        length = tokens.index(BEGIN, 1) - 1
        assert tuple(ended[1 : length + 1]) in [ends for _, ends in expected[tuple(tokens[1 : length + 1])]]
        assert ended[length + 1] == 2
        assert not any(ended[length + 2 :])


def test_rows_are_whole_sentences_one_after_another(chi_squared: Probability) -> None:
    """Also where the rows end within one; and each is as often as alone, the last but cut ones excepted."""
    drawn, expected = sentences(SMALL, stream(1000), count=9, width=41).tokens, trees(SMALL)
    lengths = Counter[int]()
    for row in drawn.tolist():
        said = "".join(map(str, row)).split("0")
        assert said[0] == ""
        words = [tuple(map(int, word)) for word in said[1:]]
        assert set(words[:-1]) <= set(expected)
        assert any(sentence[: len(words[-1])] == words[-1] for sentence in expected)
        lengths.update(len(word) for word in words[:4])
    shares = Counter[int]()
    for sentence, some in expected.items():
        shares[len(sentence)] += sum(p for p, _ in some)
    found = torch.tensor([lengths[n] for n in sorted(shares)])
    assert found.sum() == 4000
    assert chi_squared(found, torch.tensor([4000 * shares[n] for n in sorted(shares)])) > ALPHA


def test_a_longer_row_of_as_many_sentences_begins_alike() -> None:
    """No symbol that gives one of the first tokens is dropped on the way."""
    grammar = GRAMMARS["cfg3f"].below(2)
    short, long = (sentences(grammar, stream(50), count=6, width=width) for width in (97, 97 * 27))
    assert torch.equal(short.tokens[:, 1:17], long.tokens[:, 1:17])
    assert not (short.tokens[:, -20:] == BEGIN).all(dim=1).any()


@pytest.mark.parametrize(
    ("name", "length", "shortest", "longest", "entropy"),
    [
        ("cfg3f", 249.9, 64, 729, 0.7423),
        ("cfg3j", 543.9, 128, 2052, 0.7868),
        ("cfg3k", 516.3, 132, 1458, 0.8151),
    ],
)
def test_published_grammars_have_the_lengths_and_entropies_of_their_pages(
    name: str, length: float, shortest: int, longest: int, entropy: float
) -> None:
    """A misprint in a rule would show here: lengths and entropies are those of another reading."""
    grammar = GRAMMARS[name]
    (root,) = grammar.roots
    assert grammar.length() == pytest.approx(length, abs=0.05)
    assert grammar.lengths()[root] == (shortest, longest)
    assert grammar.entropy() / (grammar.length() + 1) == pytest.approx(entropy, abs=5e-5)

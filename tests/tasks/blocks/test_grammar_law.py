from collections import defaultdict
from math import exp, log

import pytest
import torch

from linbench.tasks.blocks import grammar_law
from linbench.tasks.blocks.grammar import BEGIN, Grammar, sentences
from linbench.tasks.blocks.grammar_law import next_token_law
from linbench.tasks.blocks.published_grammars import GRAMMARS
from tests.helpers.tasks import stream
from tests.tasks.blocks.test_grammar import SMALL, trees

DEEP = Grammar.parse("""
9: 7 8 / 8 7

7: 5 6 / 5 5
8: 6 5

5: 1 2 / 1 3 1
6: 2 1 / 3 1
""")


def by_hand(grammar: Grammar) -> dict[tuple[int, ...], list[float]]:
    """The law after every beginning, from the probabilities of all sentences."""
    weights: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0] * (1 + grammar.terminals))
    for sentence, some in trees(grammar).items():
        p = sum(share for share, _ in some)
        for place, token in enumerate((*sentence, BEGIN)):
            weights[sentence[:place]][token] += p
    return {begun: [x / sum(law) for x in law] for begun, law in weights.items()}


@pytest.mark.parametrize("longest", [1, 3, 81])
@pytest.mark.parametrize("grammar", [SMALL, DEEP])
def test_it_is_the_law_of_all_sentences(
    grammar: Grammar, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows have several sentences; symbols have matrices or none."""
    monkeypatch.setattr(grammar_law, "LONGEST", longest)
    monkeypatch.setattr(grammar_law, "AT_ONCE", 256)
    inputs = sentences(grammar, stream(40), count=8, width=33).tokens
    law, expected = next_token_law(grammar, inputs), by_hand(grammar)
    for row, tokens in enumerate(inputs.tolist()):
        begun: tuple[int, ...] = ()
        for place, token in enumerate(tokens):
            begun = () if token == BEGIN else (*begun, token)
            assert law[row, place].tolist() == pytest.approx(expected[begun], abs=1e-12)


def test_what_no_sentence_begins_with_has_no_law() -> None:
    law = next_token_law(SMALL, torch.tensor([[0, 2, 2, 2, 0, 1], [1, 2, 0, 2, 1, 2]]))
    assert law.sum(dim=2).tolist() == [[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]]


def extreme(grammar: Grammar, longest: bool) -> tuple[list[int], float]:
    """The longest or shortest sentence, by the first such rule of every symbol, and -log p of its tree."""
    lengths = grammar.lengths()
    rules = {symbol: some for level in grammar.levels for symbol, some in level}
    choose = max if longest else min

    def grown(symbol: int) -> tuple[list[int], float]:
        if symbol not in rules:
            return [symbol], 0.0
        rule = choose(rules[symbol], key=lambda rule: sum(lengths[child][longest] for child in rule))
        tokens, costs = zip(*map(grown, rule), strict=True)
        return [token for some in tokens for token in some], sum(costs) + log(len(rules[symbol]))

    return grown(grammar.roots[0])


@pytest.mark.parametrize("name", GRAMMARS)
def test_weights_stay_within_the_range_of_floats(name: str) -> None:
    """The largest and the smallest weight of a tree, for trees of any length: by far no 10^308."""
    grammar = GRAMMARS[name]
    per_token = grammar.entropy() / grammar.length()
    weights = dict.fromkeys((1, 2, 3), (per_token, per_token))
    for symbol, rules in (symbol for level in reversed(grammar.levels) for symbol in level):
        low, high = (
            [sum(weights[x][end] for x in rule) - log(len(rules)) for rule in rules] for end in (0, 1)
        )
        weights[symbol] = min(low), max(high)
    low, high = weights[grammar.roots[0]]
    assert -300 < low < high < 600 < log(torch.finfo(torch.float64).max)


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("longest", [False, True])
def test_the_probabilities_of_all_tokens_multiply_to_that_of_the_sentence(name: str, longest: bool) -> None:
    """Sentences have up to 2052 tokens, one tree, and down to e^-1129, which is below the smallest float."""
    tokens, cost = extreme(GRAMMARS[name], longest)
    row = torch.tensor([[BEGIN, *tokens, BEGIN]])
    law = next_token_law(GRAMMARS[name], row[:, :-1])
    assert torch.allclose(law.sum(dim=2), torch.ones(1, len(tokens) + 1, dtype=torch.float64))
    assert float(-law.gather(2, row[:, 1:, None]).log().sum()) == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize(
    ("level", "nll", "bayes", "certain"), [(3, 0.7212, 0.624, 0.14), (2, 0.7364, 0.622, 0.11)]
)
def test_drawn_sentences_cost_what_entropies_say(
    level: int, nll: float, bayes: float, certain: float
) -> None:
    """The page's numbers for sentences of the lower levels, each to four of its standard errors."""
    grammar = GRAMMARS["cfg3f"].below(level)
    drawn = sentences(grammar, stream(60), count=64, width=257).tokens
    law = next_token_law(grammar, drawn[:, :-1])
    said = law.gather(2, drawn[:, 1:, None])[:, :, 0]
    for found, expected, least in (
        (-said.log(), nll, 0),
        (law.amax(dim=2), bayes, 0.004),
        ((law.amax(dim=2) > 1 - 1e-9).double(), certain, 0.01),
    ):
        rows = found.mean(dim=1)
        assert abs(float(rows.mean()) - expected) < 4 * float(rows.std()) / len(rows) ** 0.5 + least


def test_it_says_only_what_the_tokens_before_say() -> None:
    grammar = GRAMMARS["cfg3f"].below(3)
    inputs = sentences(grammar, stream(4), count=8, width=60).tokens
    other = torch.cat([inputs[:, :25], inputs.flip(0)[:, 25:]], dim=1)
    assert torch.equal(next_token_law(grammar, inputs)[:, :25], next_token_law(grammar, other)[:, :25])


def test_the_weight_of_a_usual_sentence_is_near_one() -> None:
    """A sentence of n tokens has the probability e^-h n, and the factor per token is e^h."""
    grammar = GRAMMARS["cfg3f"]
    assert exp(grammar.entropy() / grammar.length()) == pytest.approx(2.107, abs=1e-3)

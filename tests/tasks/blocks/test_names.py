from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.tasks.blocks.names import Names, draw_names, read_words, shared_prefix_share, write_words
from tests.helpers.tasks import stream

ALPHA = 1e-3
N = 8000


def spelt(names: torch.Tensor, length: torch.Tensor) -> list[list[tuple[int, ...]]]:
    return [
        [tuple(name[:size]) for name, size in zip(row, sizes, strict=True)]
        for row, sizes in zip(names.tolist(), length.tolist(), strict=True)
    ]


@pytest.mark.parametrize(("letters", "shortest", "longest"), [(32, 1, 1), (5, 1, 2), (2, 2, 4), (3, 3, 3)])
def test_names_differ_and_their_last_letters_end_them(letters: int, shortest: int, longest: int) -> None:
    names, length = draw_names(stream(50), 8, letters=letters, shortest=shortest, longest=longest)
    assert names.shape == (50, 8, longest)
    for row in spelt(names, length):
        assert len(set(row)) == 8
        for *others, last in row:
            assert shortest <= len(others) + 1 <= longest
            assert all(0 <= letter < letters for letter in others)
            assert 0 <= last - letters * (longest > 1) < letters
    assert not names[torch.arange(longest) >= length[:, :, None]].any()


def test_names_are_drawn_until_they_differ(chi_squared: Callable[..., float]) -> None:
    """Every pair of 2 short and 4 long names comes as often as if draws of known names were repeated."""
    names, length = draw_names(stream(N), 2, letters=2, shortest=1, longest=2)
    words = [(2 + x,) for x in range(2)] + [(x, 2 + y) for x, y in product(range(2), repeat=2)]
    share = [1 / 4] * 2 + [1 / 8] * 4
    found = Counter((words.index(a), words.index(b)) for a, b in spelt(names, length))
    pairs = [(a, b) for a, b in product(range(6), repeat=2) if a != b]
    counts = torch.tensor([found[pair] for pair in pairs])
    expected = torch.tensor([N * share[a] * share[b] / (1 - share[a]) for a, b in pairs])
    assert chi_squared(counts, expected) > ALPHA


def test_all_names_there_are_can_be_drawn() -> None:
    names, length = draw_names(stream(20), 6, letters=2, shortest=1, longest=2)
    assert all(len(set(row)) == 6 for row in spelt(names, length))
    assert (length.sum(dim=1) == 10).all()


@pytest.mark.parametrize(("count", "share"), [(225, 0.22), (375, 0.13)])
def test_short_names_run_out(count: int, share: float) -> None:
    """Shares of 2512.17351's names, as its own generator gives them."""
    _, length = draw_names(stream(200), count, letters=50, shortest=1, longest=2)
    assert float((length == 1).double().mean()) == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(
    ("count", "letters", "shortest", "longest", "share"),
    [
        (225, 50, 1, 2, 0.142),
        (375, 50, 1, 2, 0.089),
        (75, 3, 5, 7, 0.603),
        (125, 3, 5, 7, 0.554),
        (125, 4, 5, 7, 0.583),
        (8, 32, 1, 1, 1 / 8),
    ],
)
def test_the_next_token_of_a_known_name_is_guessed_as_often_as_the_paper_tells(
    count: int, letters: int, shortest: int, longest: int, share: float
) -> None:
    found = shared_prefix_share(count, letters=letters, shortest=shortest, longest=longest)
    assert found == pytest.approx(share, abs=0.003)


def test_words_are_written_one_after_another_and_read_again() -> None:
    names = Names(letters=5, shortest=1, longest=3)
    words, length = draw_names(stream(30), 6, letters=5, shortest=1, longest=3)
    length[:, 4] = 0
    tokens, start = write_words(words + 3, length)
    assert tokens.shape == (30, 18)
    for row in range(30):
        kept = [word for word in spelt(words + 3, length)[row] if word]
        end = sum(map(len, kept))
        read = list(read_words(tokens[row, :end].tolist(), names, 3))
        assert [word for _, word in read] == kept
        assert [at for at, _ in read] == [
            at for at, long in zip(start[row].tolist(), length[row], strict=True) if long
        ]
        assert not tokens[row, end:].any()


def test_tokens_below_the_first_letter_are_words() -> None:
    names = Names(letters=2, shortest=1, longest=2)
    assert list(read_words([1, 5, 2, 3, 6, 1, 4], names, 3)) == [
        (0, (1,)),
        (1, (5,)),
        (2, (2,)),
        (3, (3, 6)),
        (5, (1,)),
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"shortest": 3, "longest": 2}, "shortest must be at most longest; 3 is above 2"),
        ({"letters": 50, "longest": 5}, "50 letters make over 16,777,216 names of 5 tokens"),
        ({"letters": 1}, "letters"),
    ],
)
def test_impossible_names_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Names.parse(values, where="task")

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch
from linbench.tasks.blocks.ngrams import Ngrams, ngrams

INPUTS = torch.tensor([[0, 1, 0, 2, 0, 1, 3, 1]])  # 3 does not count


def batch() -> Batch:
    targets = torch.cat([INPUTS[:, 1:], torch.tensor([[IGNORE]])], dim=1)
    return Batch(INPUTS, torch.arange(8)[None], targets.where(targets != 3, IGNORE), {})


def shares(order: int) -> list[list[float]]:
    found = ngrams(batch(), order=order, vocab_size=4, counted=3)
    assert found.logits is not None
    return found.logits.softmax(dim=2)[0].tolist()


def test_one_gram_is_how_often_each_token_came_before() -> None:
    third = [1 / 3, 1 / 3, 1 / 3, 0]
    expected = [
        third,
        [0, 1, 0, 0],
        [0.5, 0.5, 0, 0],
        third,
        [0.5, 0.25, 0.25, 0],
        [0.4, 0.4, 0.2, 0],
        [0.4, 0.4, 0.2, 0],
        [1 / 3, 1 / 2, 1 / 6, 0],
    ]
    assert torch.allclose(torch.tensor(shares(1)), torch.tensor(expected), atol=1e-6)


def test_two_grams_are_what_followed_the_last_token_and_back_off_where_nothing_did() -> None:
    expected = {
        2: [0, 1, 0, 0],
        4: [0, 0.5, 0.5, 0],
        5: [1, 0, 0, 0],
        6: [0.4, 0.4, 0.2, 0],
        7: [1, 0, 0, 0],
        1: [0, 1, 0, 0],
    }
    found = shares(2)
    for place, share in expected.items():
        assert found[place] == pytest.approx(share), place


def test_three_grams_are_what_followed_the_last_two() -> None:
    found = shares(3)
    assert found[5] == pytest.approx([1, 0, 0, 0])  # 0 1 was followed by 0
    assert found[4] == pytest.approx([0, 0.5, 0.5, 0])  # 2 0 is new, 0 was followed by 1 and by 2
    # 3 1 is new, 1 was followed by 0, and by 3, which does not count
    assert found[7] == pytest.approx([1, 0, 0, 0])


def test_answers_and_nll_are_of_these_shares() -> None:
    found = ngrams(batch(), order=2, vocab_size=4, counted=3)
    assert found.answers[0, [2, 5, 7]].tolist() == [1, 0, 0]
    assert float(found.loss[0, 4]) == pytest.approx(-torch.tensor(0.5).log().item())
    assert found.loss[0, 2] == float("inf")


def test_only_what_comes_before_is_used() -> None:
    cut = batch()._replace(inputs=torch.cat([INPUTS[:, :5], torch.full((1, 3), 2)], dim=1))
    a, b = (ngrams(x, order=3, vocab_size=4, counted=3) for x in (batch(), cut))
    assert torch.equal(a.answers[:, :5], b.answers[:, :5])


def test_counted_ngrams_mix_what_followed_with_what_follows_a_shorter_context() -> None:
    """0 is also what stands before the first token, and 3 is not due."""
    counted = Ngrams.counted(batch(), order=3, vocab_size=4)
    assert counted.counts[0].tolist() == [[2, 3, 1, 0]]
    assert counted.counts[1][0].tolist() == [0, 2, 1, 0]  # 0 1, 0 2, 0 1
    assert counted.counts[2][4].tolist() == [1, 0, 0, 0]  # 0 1 0, and 0 1 3; the last token counts most
    found = counted.predict(batch(), order=2)
    assert found.logits is not None
    one = [(count + 1 / 4) / 7 for count in (2, 3, 1, 0)]
    expected = [(count + share) / 4 for count, share in zip((0, 2, 1, 0), one, strict=True)]
    assert found.logits[0, 0].exp().tolist() == pytest.approx(expected)
    assert found.answers[0, 0] == 1
    assert float(found.loss[0, 0]) == pytest.approx(-torch.tensor(expected[1]).log().item())
    alone = counted.predict(batch(), order=1)
    assert alone.logits is not None
    assert alone.logits[0, 5].exp().tolist() == pytest.approx(one)

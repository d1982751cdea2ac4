import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from linbench.tasks.base import IGNORE
from linbench.tasks.blocks.packing import Instances, instances_needed, pack
from linbench.tasks.random import Stream
from tests.helpers.tasks import stream

LENGTHS = (2, 3, 5)


def numbered(keys: Stream) -> Instances:
    """Instances of 2, 3 or 5 tokens 10, 11, ...; after all but the last of them the next one is due, and
    the first two labels are one answer."""
    length = torch.tensor(LENGTHS)[keys.child("length").integers(1, below=3)[:, 0]]
    tokens = (10 + torch.arange(5)).expand(len(length), -1)
    places = torch.arange(4).expand(len(length), -1)
    due = places < length[:, None] - 1
    ends = torch.where(places < 2, torch.minimum(torch.tensor(1), length[:, None] - 2), places)
    content = keys.child("content").integers(1, below=1000).expand_as(places)
    return Instances(
        tokens,
        length,
        places,
        (places + 11).where(due, IGNORE),
        {"place": places},
        {"content": torch.stack([content, places], dim=2)},
        ends,
    )


def by_hand(row: int, seq_len: int, instances: int) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return the tokens of a row, and (position, target, instance, place) of whatever is due."""
    tokens: list[int] = []
    due: list[tuple[int, ...]] = []
    for k in range(instances):
        start = len(tokens)
        one = numbered(Stream(stream(row + 1).child(str(k)).key[row:]))
        length = int(one.length)
        tokens += range(10, 10 + length)
        answers = [[p for p in (0, 1) if p < length - 1], *([p] for p in range(2, length - 1))]
        for places in answers:
            if start + places[-1] < seq_len:
                due += [(start + p, 11 + p, k, p) for p in places]
    return (tokens + [0] * seq_len)[:seq_len], due


@pytest.mark.parametrize(("seq_len", "instances"), [(12, 6), (13, 7), (5, 1), (4, 1), (3, 1), (20, 2)])
def test_instances_follow_one_another_until_a_row_is_full(seq_len: int, instances: int) -> None:
    batch = pack(numbered, stream(40), seq_len=seq_len, answers=12, instances=instances)
    for row in range(40):
        tokens, due = by_hand(row, seq_len, instances)
        assert batch.inputs[row].tolist() == tokens
        used = batch.targets[row] != IGNORE
        found = torch.stack(
            [
                batch.positions[row],
                batch.targets[row],
                batch.facts["instance"][row],
                batch.slices["place"][row],
            ]
        )
        assert found.T[used].tolist() == [list(one) for one in due]
        assert used.tolist() == [n < len(due) for n in range(12)]
        assert batch.facts["content"].shape == (40, 12, 2)
        assert torch.equal(batch.facts["content"][row, :, 1], batch.slices["place"][row])
        assert not batch.positions[row][~used].any()
        assert not batch.facts["content"][row][~used].any()


def test_a_row_depends_on_its_own_key_only() -> None:
    def draw(keys: Stream) -> list[torch.Tensor]:
        batch = pack(numbered, keys, seq_len=17, answers=12, instances=9)
        return [batch.inputs, batch.positions, batch.targets, *batch.slices.values(), *batch.facts.values()]

    whole, alone = draw(stream(9)), draw(Stream(stream(9).key[4:5]))
    assert all(torch.equal(x[4:5], y) for x, y in zip(whole, alone, strict=True))


def test_every_place_is_an_answer_unless_it_is_said_where_answers_end() -> None:
    batch = pack(
        lambda keys: numbered(keys)._replace(ends=None), stream(60), seq_len=6, answers=6, instances=3
    )
    last = (batch.positions == 5) & batch.is_answer
    assert (last.any(dim=1) == (batch.inputs[:, 5] >= 10) & (batch.positions.amax(dim=1) == 5)).all()
    begun = batch.inputs[:, 5] == 10  # the first label of an instance whose second token is cut off
    assert (last.any(dim=1) & begun).any()


def test_a_first_instance_is_never_cut_at_its_start() -> None:
    batch = pack(numbered, stream(200), seq_len=64, answers=64, instances=32)
    assert (batch.inputs[:, 0] == 10).all()
    assert batch.inputs.min() == 10


@pytest.mark.parametrize("seq_len", [1, 7, 64])
def test_equal_lengths_need_as_many_instances_as_fit(seq_len: int) -> None:
    assert instances_needed(((5, 1.0),), seq_len) == -(-seq_len // 5)


def test_rows_are_hardly_ever_left_unfilled() -> None:
    """A row of T whose instances have 1 token or T is unfilled if n < T of them are all short: 2^-n."""
    assert instances_needed(((1, 0.5), (100, 0.5)), 100) == 32
    assert instances_needed(((1, 0.25), (100, 0.75)), 100) == 16
    assert instances_needed(((1, 0.5), (100, 0.5)), 20) == 20


def test_packing_never_waits_for_the_device() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        keys = Stream(mode.from_tensor(stream(3).key))
        batch = pack(numbered, keys, seq_len=17, answers=12, instances=9)
    assert batch.positions.shape == (3, 12)

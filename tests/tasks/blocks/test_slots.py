import pytest
import torch

from linbench.tasks.blocks.slots import lay_out, read_statements, statement_slots


def test_statements_stand_in_their_slots() -> None:
    statements = torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    slots = torch.tensor([[0, 2], [1, 0]])
    assert lay_out(statements, slots, length=7).tolist() == [[0, 1, 2, 0, 0, 3, 4], [0, 7, 8, 5, 6, 0, 0]]


@pytest.mark.parametrize("length", [6, 7, 8, 9])
def test_what_was_laid_out_is_read(length: int) -> None:
    count = statement_slots(length, 3)
    statements = torch.arange(1, 1 + 3 * count).view(1, count, 3)
    slots = torch.arange(count).flip(0)[None]
    tokens = lay_out(statements, slots, length=length)
    assert tokens.shape == (1, length)
    assert torch.equal(read_statements(tokens, 3), statements.flip(1))

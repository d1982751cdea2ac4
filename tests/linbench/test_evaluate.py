"""How much of a split is judged at a time."""

from types import SimpleNamespace

import pytest

from linbench.evaluate import EXAMPLES, HIDDEN, LOGITS, _at_once
from linbench.plan import plan


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(("width", "task"), [
    (256, {"seq_len": 768, "kv_pairs": 1}),  # few answers to long sequences of wide models, which once filled a GPU
    (32, {"seq_len": 768, "kv_pairs": 64, "vocab_size": 1 << 15}),
    (16, {"seq_len": 32, "kv_pairs": 2}),
])  # fmt: skip
def test_neither_logits_nor_what_is_between_layers_fills_a_gpu(width: int, task: dict[str, int], replicas: int) -> None:
    (cell,) = plan("mqar", ["deltanet"], device="cpu", seeds=[0], settings={f"task.{name}": value for name, value in task.items()})
    streams = SimpleNamespace(device="cuda", replicas=replicas)
    examples = _at_once(cell.task, streams, width)
    assert examples % EXAMPLES == 0 < examples
    for numbers, most in ((cell.task.answers * (cell.task.io.vocab_out or 1), LOGITS), (cell.task.seq_len * width, HIDDEN)):
        assert examples == EXAMPLES or examples * replicas * numbers <= most
    more = (examples + EXAMPLES) * replicas
    assert more * cell.task.answers * (cell.task.io.vocab_out or 1) > LOGITS or more * cell.task.seq_len * width > HIDDEN

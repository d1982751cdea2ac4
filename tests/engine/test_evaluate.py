"""The number of examples of a split that are evaluated at a time."""

from types import SimpleNamespace

import pytest

from linbench.engine.evaluate import EXAMPLES, HIDDEN, LOGITS, _batch_size
from tests.helpers.cells import plan


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("task", ["mqar", "selective_copy"])
@pytest.mark.parametrize(("width", "settings"), [
    (256, {"seq_len": 768}),  # few answers to long sequences of wide models, which once filled a GPU
    (32, {"seq_len": 768, "vocab_size": 1 << 15}),
    (16, {"seq_len": 32}),
])  # fmt: skip
def test_neither_logits_nor_what_is_between_layers_fills_a_gpu(
    width: int, settings: dict[str, int], task: str, replicas: int
) -> None:
    given = (
        settings
        | {"mqar": {"kv_pairs": settings["seq_len"] // 16}, "selective_copy": {"num_tokens_to_copy": 2}}[task]
    )
    (cell,) = plan(
        task,
        ["deltanet"],
        device="cpu",
        seeds=[0],
        settings={f"task.{name}": value for name, value in given.items()},
    )
    unit = {"mqar": 1, "selective_copy": EXAMPLES}[task]  # the latter's macro accuracy is of whole batches
    examples = _batch_size(cell.task, SimpleNamespace(device="cuda", replicas=replicas), width)
    assert examples % unit == 0 < examples

    def fits(examples: int) -> bool:
        each = replicas * examples
        return (
            each * cell.task.answers * (cell.task.io.vocab_out or 1) <= LOGITS
            and each * cell.task.seq_len * width <= HIDDEN
        )

    assert examples == unit or fits(examples)
    assert not fits(examples + unit)

"""MQAR drawn as its generators usually do (zoology, 2312.04927): example by example, with numpy.

Each example takes three calls that draw without replacement.
"""

from collections.abc import Callable

import numpy as np

from linbench.bench.peer import Peer, UnsupportedByPeerError
from linbench.tasks.base import IGNORE, Task
from linbench.tasks.mqar import MQAR


def draw(task: Task, count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Return a function that draws `count` examples: inputs, and a target or `IGNORE` at every position.

    Raises UnsupportedByPeerError: the task is not MQAR, or its keys have several tokens.
    """
    if not isinstance(task, MQAR):
        raise UnsupportedByPeerError("draws MQAR only")
    if task.settings.parts > 1:
        raise UnsupportedByPeerError("draws keys of one token")
    settings, generator = task.settings, np.random.RandomState(0)
    half, context = settings.vocab_size // 2, task.context
    keys_from, values_from = np.arange(1, half), np.arange(half, settings.vocab_size)
    slot_shares = np.arange(1, task.slots + 1) ** (settings.power_a - 1.0)
    slot_shares /= slot_shares.sum()

    def without_replacement(choices: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
        draws = [
            generator.choice(choices, size=settings.kv_pairs, replace=False, p=shares) for _ in range(count)
        ]
        return np.stack(draws)

    def examples() -> tuple[np.ndarray, np.ndarray]:
        keys, values = without_replacement(keys_from), without_replacement(values_from)
        places = context + 2 * without_replacement(np.arange(task.slots), slot_shares)
        inputs = np.zeros((count, settings.seq_len), dtype=np.int64)
        targets = np.full((count, settings.seq_len), IGNORE)
        inputs[:, :context:2], inputs[:, 1:context:2] = keys, values
        np.put_along_axis(inputs, places, keys, axis=1)
        np.put_along_axis(targets, places, values, axis=1)
        if settings.filler != "zero":
            filler = generator.randint(settings.vocab_size, size=inputs.shape)
            inputs = np.where(inputs == 0, filler, inputs)
        return inputs, targets

    return examples


PEER = Peer(
    name="numpy",
    package="numpy",
    distribution="numpy",
    runs_on=("cpu",),
    note=(
        "numpy: MQAR as it is usually drawn, an example at a time, its keys, its values and its places by a"
        " call of numpy.random.choice each."
    ),
    draw=draw,
)

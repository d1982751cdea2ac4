"""Drawing MQAR as its generators usually do (zoology, 2312.04927): an example at a time, each of its three
draws without replacement a call of numpy."""

from collections.abc import Callable

import numpy as np

from linbench.bench.peers import LacksError
from linbench.tasks.base import IGNORE, Task
from linbench.tasks.mqar import MQAR


def draw(task: Task, count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Each call makes so many examples: inputs and, for every position, a target or `IGNORE`. Raises
    LacksError: another task than MQAR."""
    if not isinstance(task, MQAR):
        raise LacksError("draws MQAR only")
    s, random = task.settings, np.random.RandomState(0)
    half, context = s.vocab_size // 2, task.context
    keys_from, values_from = np.arange(1, half), np.arange(half, s.vocab_size)
    shares = np.arange(1, task.slots + 1) ** (s.power_a - 1.0)
    shares /= shares.sum()

    def without_replacement(choices: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
        return np.stack(
            [random.choice(choices, size=s.kv_pairs, replace=False, p=shares) for _ in range(count)]
        )

    def examples() -> tuple[np.ndarray, np.ndarray]:
        keys, values = without_replacement(keys_from), without_replacement(values_from)
        places = context + 2 * without_replacement(np.arange(task.slots), shares)
        inputs, targets = np.zeros((count, s.seq_len), dtype=np.int64), np.full((count, s.seq_len), IGNORE)
        inputs[:, :context:2], inputs[:, 1:context:2] = keys, values
        np.put_along_axis(inputs, places, keys, axis=1)
        np.put_along_axis(targets, places, values, axis=1)
        if s.filler != "zero":
            inputs = np.where(inputs == 0, random.randint(s.vocab_size, size=inputs.shape), inputs)
        return inputs, targets

    return examples

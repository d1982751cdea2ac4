"""Overlap of test and training examples.

Splits are streams of their own; where few examples exist, they meet.
"""

from typing import NamedTuple

import torch

from linbench.experiments.protocol import Protocol
from linbench.tasks.base import Split, Task
from linbench.tasks.random import content

MOST = 1 << 16
"""Largest number of training examples that are looked through."""

NUMBERS = 1 << 22
"""Largest number of tokens, or numbers in vectors, in these."""


class Collisions(NamedTuple):
    """Test examples that training may have seen.

    Args:
        tested: test examples that are looked for, the first of their split.
        shared: how many of these have the inputs of a training example that is looked through.
        looked: training examples that are looked through, the first of their split.
        trained: training examples that a run draws.
    """

    tested: int
    shared: int
    looked: int
    trained: int

    def __str__(self) -> str:
        """Return a sentence.

        For instance `9.6 % of 2,048 test examples are among the first 65,536 of 198,019 to train on`.
        """
        share = f"{self.shared / self.tested:.1%} of" if self.shared else "none of"
        first = f"the first {self.looked:,} of " if self.looked < self.trained else "the "
        return (
            f"{share} {self.tested:,} test examples {'are' if self.shared else 'is'} among"
            f" {first}{self.trained:,} to train on"
        )


def collisions(task: Task, protocol: Protocol, *, seed: int = 0, most: int = MOST) -> Collisions:
    """Count test examples that are also training examples, for a run with these settings and that seed.

    Args:
        most: largest number of training examples to look through.
    """
    trained = protocol.examples or protocol.steps(task.seq_len) * protocol.batch_size
    looked = max(1, min(trained, most, NUMBERS // _numbers(task)))
    tested = min(protocol.test_examples, looked)
    known = set(_contents(task, looked, seed, "train"))
    shared = sum(content in known for content in _contents(task, tested, seed, "test"))
    return Collisions(tested, shared, looked, trained)


def _contents(task: Task, count: int, seed: int, split: Split) -> list[int]:
    """Return a number for each example that depends on its inputs alone."""
    hashes: list[int] = []
    at_once = max(1, (NUMBERS >> 3) // _numbers(task))
    for first in range(0, count, at_once):
        index = torch.arange(first, min(first + at_once, count))
        inputs = task.sample(index, seed=seed, split=split).inputs.flatten(1)
        if inputs.is_floating_point():
            inputs = inputs.view(torch.int32)  # the bits themselves
        hashes += content(inputs).tolist()
    return hashes


def _numbers(task: Task) -> int:
    return task.seq_len * (task.io.d_in or 1)

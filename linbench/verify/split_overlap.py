"""How much of a test was already seen in training. Splits are streams of their own; where few examples exist,
they meet."""

from typing import NamedTuple

import torch

from linbench.experiments.protocol import Protocol
from linbench.tasks.base import Split, Task
from linbench.tasks.random import content

MOST = 1 << 16
"""Examples to train on that are looked through."""

NUMBERS = 1 << 22
"""Tokens, or numbers in vectors, in these."""


class Collisions(NamedTuple):
    """shared: how many of the first `tested` examples of the test split have the inputs of one of the first
    `looked` of the `trained` that training draws."""

    tested: int
    shared: int
    looked: int
    trained: int

    def __str__(self) -> str:
        """`9.6 % of 2,048 test examples are among the first 65,536 of 198,019 to train on`."""
        share = f"{self.shared / self.tested:.1%} of" if self.shared else "none of"
        first = f"the first {self.looked:,} of " if self.looked < self.trained else "the "
        return (
            f"{share} {self.tested:,} test examples {'are' if self.shared else 'is'} among"
            f" {first}{self.trained:,} to train on"
        )


def collisions(task: Task, protocol: Protocol, *, seed: int = 0, most: int = MOST) -> Collisions:
    """As by these settings a run with that seed trains and is tested; at most so many examples to train on
    are looked through."""
    trained = protocol.examples or protocol.steps(task.seq_len) * protocol.batch_size
    looked = max(1, min(trained, most, NUMBERS // _numbers(task)))
    tested = min(protocol.test_examples, looked)
    known = set(_contents(task, looked, seed, "train"))
    return Collisions(
        tested, sum(content in known for content in _contents(task, tested, seed, "test")), looked, trained
    )


def _contents(task: Task, count: int, seed: int, split: Split) -> list[int]:
    """By the inputs of each example."""
    found: list[int] = []
    at_once = max(1, (NUMBERS >> 3) // _numbers(task))
    for first in range(0, count, at_once):
        inputs = task.sample(
            torch.arange(first, min(first + at_once, count)), seed=seed, split=split
        ).inputs.flatten(1)
        found += content(inputs.view(torch.int32) if inputs.is_floating_point() else inputs).tolist()
    return found


def _numbers(task: Task) -> int:
    return task.seq_len * (task.io.d_in or 1)

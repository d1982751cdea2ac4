"""The order of batches in training: the segment of a mixture that each step trains on."""

from typing import NamedTuple

from linbench.tasks.base import Task


class Segment(NamedTuple):
    """A part of the training data: a fixed set of examples of a task, or fresh ones if `examples` is None."""

    task: Task
    examples: int | None


class Curriculum(NamedTuple):
    """The order in which training takes its batches.

    A batch holds examples of one segment. An epoch goes through the segments in order, and all epochs are the
    same. Training without a mixture has one segment and epochs of one batch.

    batches: for each segment its batches in an epoch. tokens_each: for each segment the tokens in a batch.
    """

    batches: tuple[int, ...]
    tokens_each: tuple[int, ...]

    @classmethod
    def of(cls, segments: tuple[Segment, ...], batch_size: int) -> "Curriculum":
        """Return the curriculum of a mixture; a segment's last batch is filled up with its first examples."""
        batches = tuple(-(-(segment.examples or 1) // batch_size) for segment in segments)
        return cls(batches, tuple(batch_size * segment.task.seq_len for segment in segments))

    @property
    def epoch(self) -> int:
        """The number of steps in an epoch."""
        return sum(self.batches)

    def segment(self, step: int) -> int:
        """Return the number of the segment that a step trains on, counting from 0."""
        left = step % self.epoch
        for number, batches in enumerate(self.batches):
            if left < batches:
                return number
            left -= batches
        raise AssertionError("an epoch has no more steps than batches")

    def before(self, segment: int, step: int) -> int:
        """Return the number of batches of a segment before a step, counting from 0."""
        epochs, left = divmod(step, self.epoch)
        own = self.batches[segment]
        return epochs * own + min(max(left - sum(self.batches[:segment]), 0), own)

    def tokens(self, steps: int) -> int:
        """Return the number of tokens seen in the first `steps` steps."""
        return sum(self.before(number, steps) * each for number, each in enumerate(self.tokens_each))

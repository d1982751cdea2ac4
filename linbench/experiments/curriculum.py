"""Which segment of a mixture each step trains on, and which of its batches."""

from typing import NamedTuple

from linbench.tasks.base import Task


class Segment(NamedTuple):
    """A part of what is trained on: a fixed set of so many examples of a task; None: fresh ones all the
    time."""

    task: Task
    examples: int | None


class Curriculum(NamedTuple):
    """The order in which a training takes its batches: each holds examples of one segment, an epoch goes
    through the segments in their order, and every epoch is the same. What is no mixture is one segment, with
    a batch of it at every step.

    batches: of every segment in an epoch. tokens_each: of a batch of every segment.
    """

    batches: tuple[int, ...]
    tokens_each: tuple[int, ...]

    @classmethod
    def of(cls, segments: tuple[Segment, ...], batch_size: int) -> "Curriculum":
        """Of a mixture: as many batches of each segment as hold all its examples, the last filled up with its
        first."""
        batches = tuple(-(-(segment.examples or 1) // batch_size) for segment in segments)
        return cls(batches, tuple(batch_size * segment.task.seq_len for segment in segments))

    @property
    def epoch(self) -> int:
        """Steps."""
        return sum(self.batches)

    def segment(self, step: int) -> int:
        """The number of the segment that a step, counted from 0, trains on."""
        left = step % self.epoch
        for number, batches in enumerate(self.batches):
            if left < batches:
                return number
            left -= batches
        raise AssertionError("an epoch has no more steps than batches")

    def before(self, segment: int, step: int) -> int:
        """How many batches of a segment come before a step, counted from 0."""
        epochs, left = divmod(step, self.epoch)
        own = self.batches[segment]
        return epochs * own + min(max(left - sum(self.batches[:segment]), 0), own)

    def tokens(self, steps: int) -> int:
        """Seen in so many steps."""
        return sum(self.before(number, steps) * each for number, each in enumerate(self.tokens_each))

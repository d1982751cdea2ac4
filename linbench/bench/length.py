"""`bench length`: how the cost of a layer grows with the length of sequences, at equal tokens in a batch."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from linbench.bench.layer import LayerCase, Question
from linbench.bench.presets import Preset


def cases(base: Sequence[LayerCase], preset: Preset) -> list[LayerCase]:
    """Return training, prompts and memory of each layer at every length."""
    questions: tuple[Question, ...] = ("train", "prefill", "memory")
    return [
        replace(case, question=question, length=length, batch=preset.batch(length))
        for case, length, question in product(base, preset.lengths, questions)
    ]

"""`bench length`: how a layer's cost grows with the length of its sequences, at as many tokens in every
batch."""

from collections.abc import Sequence
from dataclasses import replace

from linbench.bench.layer import Case
from linbench.bench.presets import Preset


def cases(base: Sequence[Case], preset: Preset) -> list[Case]:
    """Training, prompts and memory of each at every length."""
    return [
        replace(case, question=question, length=length, batch=preset.batch(length))
        for case in base
        for length in preset.lengths
        for question in ("train", "prefill", "memory")
    ]

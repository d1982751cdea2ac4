"""Layers that are timed: which cases of a benchmark claims may look at."""

from dataclasses import replace
from functools import cache

from pydantic import Field, field_validator

from linbench.bench.case import anywhere
from linbench.bench.layer import Case
from linbench.bench.presets import PRESETS, base, shaped
from linbench.common.settings import Settings
from linbench.experiments.precision import pick_precision

TRAINING = "training tokens per second"
"""Forward and backward of a batch: of the device alone on a GPU, where calls are replayed from a CUDA graph;
as a caller waits for it on a CPU."""


class Bench(Settings):
    """Layers in their native form as `linbench bench length` times them, as many tokens in every batch, in
    bf16 on a GPU and fp32 on a CPU."""

    preset: str = Field(description="of widths, heads and tokens of a batch")
    lengths: tuple[int, ...] = Field(min_length=1, description="tokens of a sequence")

    @field_validator("preset")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"presets are {', '.join(PRESETS)}")
        return value

    def case(self, model: str, length: int, *, device: str) -> Case:
        """Training of a layer on a device. Raises UserError: a batch does not hold a sequence of that length,
        or there is no such model."""
        preset = shaped(self.preset, lengths=[length])
        (found,) = base([model], preset, device=device)
        return replace(found, question="train", batch=preset.batch(length))

    def asked(self, model: str, length: int, kind: str) -> str:
        """`anywhere` of the result that it has on a kind of device, which need not be there."""
        return _asked(self.preset, model, length, kind)


@cache
def _asked(preset: str, model: str, length: int, kind: str) -> str:
    """To size a layer takes a while, and it is asked for again and again."""
    identity = Bench(preset=preset, lengths=(length,)).case(model, length, device="cpu").identity
    return anywhere({**identity, "device": kind, "precision": pick_precision(None, kind)})

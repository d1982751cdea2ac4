"""How models are trained and judged."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import Field

from linbench.common.settings import Settings

VERSION = 2
"""Raised whenever a change to training or evaluation changes results; part of the identity of every cell."""


class Protocol(Settings):
    """Optimiser, schedule, budget and judgement. Defaults stand in `suites/protocol.yaml`."""

    tokens: int = Field(ge=1, description="token budget; the steps follow from batch size and length")
    batch_size: int = Field(ge=1, description="examples per step, fresh ones every step")
    lr: float = Field(gt=0, description="peak learning rate of AdamW")
    schedule: Literal["cosine", "constant"] = Field(description="what follows the warm-up")
    warmup: float = Field(ge=0, lt=1, description="share of the steps over which the rate rises linearly")
    beta1: float = Field(ge=0, lt=1, description="AdamW")
    beta2: float = Field(ge=0, lt=1, description="AdamW")
    weight_decay: float = Field(ge=0, description="on matrices only, unless a mixer says otherwise")
    clip: float = Field(gt=0, description="largest norm of the gradient")
    stop_at: float | None = Field(gt=0, le=1, description="validation accuracy at which a run ends early; null: never")
    evaluations: int = Field(ge=5, multiple_of=5, description="how often the validation split is scored along the way")
    validation_examples: int = Field(ge=1, description="size of the validation split")
    test_examples: int = Field(ge=1, description="size of the test split, scored once, at the end")
    precision: Literal["fp32"] = Field(description="number format; TF32 is off")

    def steps(self, seq_len: int) -> int:
        """Optimiser steps that the budget buys at length `seq_len`, at least one per evaluation."""
        return max(self.evaluations, round(self.tokens / (self.batch_size * seq_len)))


def default_protocol() -> Mapping[str, Any]:
    """The default settings as they stand in the suite."""
    return suite_block("default")


def suite_block(name: str) -> Mapping[str, Any]:
    """One block of `suites/protocol.yaml`."""
    text = (files("linbench") / "suites" / "protocol.yaml").read_text(encoding="utf-8")
    block: Mapping[str, Any] = yaml.safe_load(text)[name]
    return block

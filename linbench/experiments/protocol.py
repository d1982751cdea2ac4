"""How models are trained and judged."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Self

import yaml
from pydantic import Field, model_validator

from linbench.common.errors import unknown
from linbench.common.settings import Settings
from linbench.experiments.precision import Precision

VERSION = 4
"""Raised whenever a change to training or evaluation changes results; part of the identity of every cell."""


class Protocol(Settings):
    """Optimiser, schedule, budget and judgement. Defaults stand in `experiments/protocols.yaml`."""

    tokens: int = Field(
        ge=1,
        le=10**15,
        description="token budget; the steps follow from batch size and length, unless epochs are given",
    )
    batch_size: int = Field(ge=1, le=1 << 20, description="examples per step")
    examples: int | None = Field(
        ge=1, le=10**12, description="size of a fixed training set; null: fresh examples every step"
    )
    epochs: int | None = Field(
        ge=1,
        le=10**6,
        description="times through the fixed training set; null: as many as the token budget buys",
    )
    shuffle: bool = Field(description="a new order in every epoch")
    lr: float = Field(gt=0, description="peak learning rate of AdamW")
    schedule: Literal["cosine", "epoch_cosine", "constant"] = Field(
        description="what follows the warm-up; epoch_cosine falls at the end of epochs only"
    )
    warmup: float = Field(ge=0, lt=1, description="share of the steps over which the rate rises linearly")
    beta1: float = Field(ge=0, lt=1, description="AdamW")
    beta2: float = Field(ge=0, lt=1, description="AdamW")
    weight_decay: float = Field(ge=0, description="of AdamW")
    decay: Literal["matrices", "all"] = Field(
        description="what decays; matrices: unless a mixer says otherwise"
    )
    clip: float | None = Field(gt=0, description="largest norm of the gradient; null: none")
    stop_at: float | None = Field(
        gt=0, le=1, description="validation accuracy at which a run ends early; null: never"
    )
    evaluations: int = Field(
        ge=5, le=10_000, description="how often the validation split is scored along the way"
    )
    validation_examples: int = Field(ge=1, le=1 << 24, description="size of the validation split")
    test_examples: int = Field(
        ge=1, le=1 << 24, description="size of the test split, scored once, at the end"
    )
    precision: Precision = Field(description="fp32, with TF32 off, or bf16 in products of matrices")

    @model_validator(mode="after")
    def _epochs_of_something(self) -> Self:
        if self.examples is None and (
            self.epochs is not None or self.shuffle or self.schedule == "epoch_cosine"
        ):
            raise ValueError(
                "epochs, shuffle and epoch_cosine need a fixed training set; give its size as"
                " protocol.examples"
            )
        return self

    def steps(self, seq_len: int) -> int:
        """Optimiser steps that the epochs take or the budget buys at length `seq_len`, at least one per
        evaluation."""
        if self.epochs is not None and self.examples is not None:
            return max(self.evaluations, round(self.epochs * self.examples / self.batch_size))
        return max(self.evaluations, round(self.tokens / (self.batch_size * seq_len)))


def default_protocol() -> Mapping[str, Any]:
    """The default settings as they stand in the suite."""
    return suite_block("default")


def published(name: str | None) -> Mapping[str, Any]:
    """What a published protocol changes of the default; nothing without a name. Raises UserError: there is
    none of that name."""
    if name is None:
        return {}
    names = _suite().keys() - {"default", "search", "former_searches"}
    if name not in names:
        raise unknown("protocol", name, names)
    return suite_block(name)


def former_searches() -> Sequence[Mapping[str, Any]]:
    """Return the rules by which stored results chose their learning rates in their day: a mark, a sentence,
    and the settings of a search that were others."""
    found: Sequence[Mapping[str, Any]] = _suite()["former_searches"]
    return found


def suite_block(name: str) -> Mapping[str, Any]:
    """One block of `experiments/protocols.yaml`."""
    block: Mapping[str, Any] = _suite()[name]
    return block


@cache
def _suite() -> Mapping[str, Any]:
    text = (files("linbench.experiments") / "protocols.yaml").read_text(encoding="utf-8")
    suite: Mapping[str, Any] = yaml.safe_load(text)
    return suite

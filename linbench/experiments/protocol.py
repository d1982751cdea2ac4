"""The protocol: how models are trained and tested."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Self

import yaml
from pydantic import Field, model_validator

from linbench.common.errors import unknown
from linbench.common.settings import ABSENT, Settings
from linbench.experiments.precision import Precision

VERSION = 4
"""The version of training and evaluation. It is raised when a change of either changes results."""

MOST_DOUBLINGS = 20
"""The most doublings of a budget: a million times as much training."""


class Protocol(Settings):
    """The optimizer, schedule, budget and evaluation. Defaults are in `experiments/protocols.yaml`."""

    tokens: int = Field(
        ge=1,
        le=10**15,
        description="token budget, which gives the number of steps unless epochs are given",
    )
    batch_size: int = Field(ge=1, le=1 << 20, description="examples per step")
    examples: int | None = Field(
        ge=1, le=10**12, description="size of a fixed training set; null: fresh examples every step"
    )
    epochs: int | None = Field(
        ge=1,
        le=10**6,
        description="passes over the fixed training set; null: as many as fit the token budget",
    )
    shuffle: bool = Field(description="whether every epoch has a new order")
    fresh: bool = Field(
        False,
        description="whether every epoch of a training mixture has new examples",
        json_schema_extra={ABSENT: False},
    )
    doublings: int = Field(
        0,
        ge=0,
        le=MOST_DOUBLINGS,
        description="number of times that the budget is doubled; warm-up and evaluations keep their places",
        json_schema_extra={ABSENT: 0},
    )
    rungs: int = Field(
        1,
        ge=1,
        le=MOST_DOUBLINGS + 1,
        description=(
            "budgets, each twice the one before, that training goes through until it has learned; needs wsd"
        ),
        json_schema_extra={ABSENT: 1},
    )
    lr: float = Field(gt=0, description="peak learning rate of AdamW")
    schedule: Literal["cosine", "epoch_cosine", "linear", "constant", "wsd"] = Field(
        description=(
            "learning rate after the warm-up; epoch_cosine changes it only between epochs; linear falls to"
            " zero; wsd (warm-up, stable, decay) is constant and falls linearly at the end"
        )
    )
    cooldown: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="fraction of the steps at the end over which wsd falls",
        json_schema_extra={ABSENT: 0.2},
    )
    warmup: float = Field(
        ge=0, lt=1, description="fraction of the steps over which the learning rate rises linearly"
    )
    beta1: float = Field(ge=0, lt=1, description="beta1 of AdamW")
    beta2: float = Field(ge=0, lt=1, description="beta2 of AdamW")
    weight_decay: float = Field(ge=0, description="weight decay of AdamW")
    decay: Literal["matrices", "all"] = Field(
        description="parameters that decay; matrices: all matrices unless a mixer excludes one"
    )
    clip: float | None = Field(gt=0, description="norm that gradients are clipped to; null: no clipping")
    stop_at: float | None = Field(
        gt=0, le=1, description="validation accuracy that ends a run early; null: never"
    )
    evaluations: int = Field(ge=5, le=10_000, description="number of validations during training")
    validation_examples: int = Field(ge=1, le=1 << 24, description="size of the validation split")
    validate_on: Literal["all", "trained"] = Field(
        "all",
        description=(
            "tests that are validated on; trained: those no longer than the sequences of training, if"
            " there are any"
        ),
        json_schema_extra={ABSENT: "all"},
    )
    test_examples: int = Field(ge=1, le=1 << 24, description="size of the test split, scored once at the end")
    first_token: bool = Field(
        False,
        description=(
            "whether tests also measure what share of its weights attention gives to the first token, a sink"
        ),
        json_schema_extra={ABSENT: False},
    )
    jitter: float = Field(
        0.0,
        ge=0,
        lt=1,
        description=(
            "relative size of a random change of the first weights: runs of one seed with and without a tiny"
            " one tell how far apart runs end that nothing tells apart"
        ),
        json_schema_extra={ABSENT: 0.0},
    )
    precision: Precision = Field(description="fp32 (with TF32 off), or bf16 for matrix products")

    @model_validator(mode="after")
    def _epochs_of_something(self) -> Self:
        if self.examples is None and (
            self.epochs is not None or self.shuffle or self.fresh or self.schedule == "epoch_cosine"
        ):
            raise ValueError(
                "epochs, shuffle, fresh and epoch_cosine need a fixed training set; set its size with"
                " protocol.examples"
            )
        return self

    @model_validator(mode="after")
    def _rungs_of_wsd(self) -> Self:
        if self.rungs > 1 and self.schedule != "wsd":
            raise ValueError(
                "rungs need a learning rate that stays until the end; set protocol.schedule to wsd"
            )
        if self.rungs + self.doublings > MOST_DOUBLINGS + 1:
            raise ValueError(f"rungs and doublings together may double a budget {MOST_DOUBLINGS} times")
        return self

    def steps(self, seq_len: int) -> int:
        """Return the number of optimizer steps for sequences of this length, before any doubling.

        There is at least one per evaluation.
        """
        if self.epochs is not None and self.examples is not None:
            return max(self.evaluations, round(self.epochs * self.examples / self.batch_size))
        return max(self.evaluations, round(self.tokens / (self.batch_size * seq_len)))


def default_protocol() -> Mapping[str, Any]:
    """Return the default settings."""
    return suite_block("default")


def published(name: str | None) -> Mapping[str, Any]:
    """Return the settings in which a published protocol differs from the default; none without a name.

    Raises UserError: there is no protocol of that name.
    """
    if name is None:
        return {}
    names = _blocks().keys() - {"default", "search", "former_searches"}
    if name not in names:
        raise unknown("protocol", name, names)
    return suite_block(name)


def former_searches() -> Sequence[Mapping[str, Any]]:
    """Return the earlier rules for choosing learning rates: a mark, a sentence, and their settings."""
    searches: Sequence[Mapping[str, Any]] = _blocks()["former_searches"]
    return searches


def suite_block(name: str) -> Mapping[str, Any]:
    """Return one block of `experiments/protocols.yaml`."""
    block: Mapping[str, Any] = _blocks()[name]
    return block


@cache
def _blocks() -> Mapping[str, Any]:
    text = (files("linbench.experiments") / "protocols.yaml").read_text(encoding="utf-8")
    blocks: Mapping[str, Any] = yaml.safe_load(text)
    return blocks

"""The type of a cell's result."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from linbench.results.schema.fields import (
    STATUSES,
    Count,
    Name,
    NotNegative,
    Number,
    Positive,
    Share,
    Size,
    Whole,
)

# Only settings that readers calculate with are declared here. Tasks and layers have others of their own, a
# user's too.


class TaskSettings(TypedDict, total=False):
    seq_len: Size


class LayerSettings(TypedDict, total=False):
    heads: Size
    head_dim: Size | None
    expand_k: Positive


class BackboneSettings(TypedDict):
    d_model: Size
    layers: NotRequired[Size]


class ProtocolSettings(TypedDict):
    lr: Positive
    batch_size: Size
    tokens: Size
    precision: str
    test_examples: NotRequired[Size]
    examples: NotRequired[Size | None]
    epochs: NotRequired[Size | None]
    doublings: NotRequired[Whole]
    stop_at: NotRequired[Share | None]


class Layer(TypedDict):
    mixer: Name
    version: Whole
    settings: LayerSettings
    kernel: dict[str, Whole]
    source: str | None


class Backbone(TypedDict):
    version: Whole
    settings: BackboneSettings
    kernel: dict[str, Whole]


class Model(TypedDict):
    form: Literal["native", "controlled"]
    backbone: Backbone
    layers: Annotated[list[Layer], Field(min_length=1)]


class Segment(TypedDict):
    settings: TaskSettings
    examples: Size


class Test(TypedDict):
    settings: TaskSettings


class Task(TypedDict):
    name: Name
    version: Whole
    draws: NotRequired[Whole]
    settings: TaskSettings
    source: str | None
    train: NotRequired[Annotated[list[Segment], Field(min_length=1)]]
    test: NotRequired[Annotated[list[Test], Field(min_length=1)]]


class Protocol(TypedDict):
    version: Whole
    settings: ProtocolSettings


class CellIdentity(TypedDict):
    schema: Whole
    task: Task
    model: Model
    protocol: Protocol
    seed: Whole
    device: Name
    backend: NotRequired[str]


# The environment is common to all kinds.


class Device(TypedDict):
    type: NotRequired[str]
    name: str
    cores: NotRequired[Whole | None]
    cuda: NotRequired[str | None]


class Environment(TypedDict):
    commit: str | None
    dirty: bool | None
    packages: dict[str, str]
    device: NotRequired[Device]
    python: NotRequired[str]
    platform: NotRequired[str]
    threads: NotRequired[Size]
    deterministic: NotRequired[bool]
    variables: NotRequired[dict[str, str]]


# A cell.


class State(TypedDict):
    recurrent: Count
    cache: Count
    convolution: Count
    shift: Count
    total: Count


class BuiltModel(TypedDict, total=False):
    parameters: Count
    state: State | None
    flops_per_token: Positive | None


class Point(TypedDict):
    step: Size
    tokens: Size
    loss: NotRequired[Number]
    accuracy: Number
    nll: NotRequired[Number]
    mse: NotRequired[Number]


class Totals(TypedDict):
    sum: list[Number]
    weight: list[NotNegative]


Slices = dict[str, dict[str, list[Whole] | Totals]]
Metrics = dict[str, Number]


class TakenTest(TypedDict):
    settings: TaskSettings
    seq_len: Size
    chance: Share
    metrics: Metrics
    slices: Slices


class Validation(TypedDict):
    """Tests that were validated on, where these are not all: their places, and their mean levels."""

    tests: Annotated[list[Whole], Field(min_length=1)]
    chance: Share
    optimum: Share


class Search(TypedDict):
    best: Positive
    edge: bool
    accuracies: list[Annotated[list[Number | None], Field(min_length=2, max_length=2)]]
    seeds: list[Whole]
    runs: NotRequired[Size]
    tokens: NotRequired[Whole]
    rungs: NotRequired[list[Whole]]


Ending = Literal["optimum", "flat", "cap", "failed"]
"""The reason why a ladder ended: its optimum, no more gain, the largest budget, or a rung without a score."""


class Rung(TypedDict):
    tokens: Size
    accuracy: Number | None


class Ladder(TypedDict):
    ended: Ending
    most: Size
    rungs: Annotated[list[Rung], Field(min_length=1)]


class Stack(TypedDict):
    size: Size
    note: str | None


class CellResult(TypedDict):
    schema: NotRequired[Whole]
    id: Name
    label: Name
    preset: str | None
    purpose: Literal["report", "tuning", "rung"]
    search: Search | None
    ladder: NotRequired[Ladder]
    cell: CellIdentity
    chance: Share
    optimum: NotRequired[Share]
    scoring: NotRequired[Whole]
    status: STATUSES
    outside: NotRequired[bool]
    reason: str | None
    marks: list[str]
    metrics: Metrics
    slices: Slices
    tests: NotRequired[Annotated[list[TakenTest], Field(min_length=2)]]
    validation: NotRequired[Validation]
    curve: list[Point]
    model: BuiltModel
    seconds: NotNegative
    stack: Stack
    environment: Environment

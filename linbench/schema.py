"""The record of a result: which fields a result file holds, and of which types. A file that does not fit is no result, whatever its checksum says."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from linbench.common.errors import shortened

CELL, SPEED, OPERATION, STEP, DRAW = "cell", "speed", "operation", "step", "draw"
"""Kinds of results: of a cell, as one that does not say is; of a layer that was timed, a kernel, a whole training step, and the drawing of examples."""

STATUSES = Literal["ok", "diverged", "oom", "timeout", "failed"]
"""How a cell ended."""

BENCH_STATUSES = Literal["ok", "undeclared", "oom", "failed"]
"""How a benchmark ended."""

_LARGEST = 2**63 - 1

Whole = Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Size = Annotated[int, Field(ge=1, le=_LARGEST)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
NotNegative = Annotated[float, Field(ge=0, le=1e300)]
Positive = Annotated[float, Field(gt=1e-300, le=1e300)]
Seconds = Annotated[float, Field(ge=1e-12, le=1e12)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1)]


# Of settings those that are calculated with have a type; all others are what a user's task or layer makes them.


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


class BenchEnvironment(TypedDict):
    commit: str | None
    dirty: bool | None
    packages: dict[str, str]
    device: Device
    threads: Size


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
    loss: Number
    accuracy: Number


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


class Search(TypedDict):
    best: Positive
    edge: bool
    accuracies: list[Annotated[list[Number | None], Field(min_length=2, max_length=2)]]
    seeds: list[Whole]


class Stack(TypedDict):
    size: Size
    note: str | None


class CellResult(TypedDict):
    id: Name
    label: Name
    preset: str | None
    purpose: Literal["report", "tuning"]
    search: Search | None
    cell: CellIdentity
    chance: Share
    scoring: NotRequired[Whole]
    status: STATUSES
    outside: NotRequired[bool]
    reason: str | None
    marks: list[str]
    metrics: Metrics
    slices: Slices
    tests: NotRequired[Annotated[list[TakenTest], Field(min_length=2)]]
    curve: list[Point]
    model: BuiltModel
    seconds: NotNegative
    stack: Stack
    environment: Environment


# Benchmarks.


class Timing(TypedDict):
    median: Seconds
    low: Seconds
    high: Seconds
    calls: Size


class Side(TypedDict, total=False):
    reason: str
    note: str
    as_called: Timing
    replayed: Timing
    batch: Timing
    peak_bytes: Count


class KernelWay(TypedDict, total=False):
    as_called: Timing
    replayed: Timing


class KernelSide(TypedDict, total=False):
    reason: str
    note: str
    forward: KernelWay
    both: KernelWay
    error: NotNegative
    gradient_error: NotNegative
    peak_bytes: Count


class Cost(TypedDict):
    flops: NotNegative | None
    bytes: NotNegative | None


class Ceilings(TypedDict):
    bytes_per_second: Positive
    flops_per_second: Positive


class BenchPeer(TypedDict):
    name: Name
    version: str | None


class Processor(TypedDict):
    name: str
    threads: Size


class BenchIdentity(TypedDict):
    device: Name
    peer: BenchPeer | None
    processor: NotRequired[Processor]


class LayerShape(TypedDict):
    batch: Size
    length: Size


class BenchLayer(Layer):
    form: Literal["native", "controlled"]
    d_model: Size


class SpeedIdentity(BenchIdentity):
    question: Literal["train", "prefill", "decode", "memory"]
    layer: BenchLayer
    shape: LayerShape
    precision: str
    backend: str


class KernelShape(TypedDict):
    B: Size
    T: Size
    H: NotRequired[Size]
    D: Size


class OperationIdentity(BenchIdentity):
    operation: Name
    shape: KernelShape
    precision: str


class StepIdentity(BenchIdentity):
    model: Model
    task: Task
    shape: KernelShape
    replicas: Size
    precision: str


class DrawIdentity(BenchIdentity):
    task: Task
    preset: str
    seq_len: Size


class BenchState(TypedDict):
    floats: Count
    bytes: Count
    declared: State | None


class BenchResult(TypedDict):
    kind: str
    id: Name
    label: Name
    status: BENCH_STATUSES
    reason: str | None
    marks: list[str]
    when: NotRequired[str]
    of_peer: NotRequired[str | None]
    state: BenchState | None
    cost: Cost | None
    ceilings: Ceilings | None
    first_call: NotNegative | None
    cold_call: NotRequired[NotNegative | None]
    environment: BenchEnvironment


class SpeedResult(BenchResult):
    bench: SpeedIdentity
    sides: dict[str, Side]


class OperationResult(BenchResult):
    bench: OperationIdentity
    sides: dict[str, KernelSide]
    bare: NotRequired[Timing | None]


class StepResult(BenchResult):
    bench: StepIdentity
    sides: dict[str, Side]
    parts: NotRequired[dict[str, NotNegative] | None]


class DrawResult(BenchResult):
    bench: DrawIdentity
    sides: dict[str, Side]
    examples: NotRequired[Size]


RECORDS: Mapping[str, Any] = {CELL: CellResult, SPEED: SpeedResult, OPERATION: OperationResult, STEP: StepResult, DRAW: DrawResult}


def misfit(result: Mapping[str, Any]) -> str | None:
    """Return what the first field that does not fit the record of its kind should be, such as `curve.0.step should be a valid integer`; None: all fit."""
    kind = result.get("kind", CELL)
    if not isinstance(kind, str) or kind not in RECORDS:
        return f"kind should be one of {', '.join(RECORDS)}"
    try:
        _adapter(kind).validator.validate_python(result, strict=True)
    except ValidationError as invalid:
        return _words(invalid.errors(include_url=False)[0])
    return next(_contradictions(result), None) if kind == CELL else None


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(RECORDS[kind])


def _words(error: ErrorDetails) -> str:
    """Field names are cut and escaped: they come from the file, too."""
    field = ".".join(shortened(ascii(part).strip("'"), 40) for part in error["loc"])
    if error["type"] == "missing":
        return f"{field} is missing"
    return f"{field} {error['msg'][0].lower()}{error['msg'][1:]}".replace("input should", "should")


def _contradictions(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a cell's result says in one place and not in another."""
    tests, asked = result.get("tests", []), result["cell"]["task"].get("test", [])
    if len(tests) != (len(asked) if len(asked) > 1 else 0):
        yield "tests should be those of cell.task.test"
    for place, taken in [("", result), *((f"tests.{i}.", test) for i, test in enumerate(tests))]:
        yield from _uneven(taken["slices"], f"{place}slices")
        if result["status"] == "ok" and "accuracy" not in taken["metrics"]:
            yield f"{place}metrics.accuracy is missing"
    if any(rate is None for rate, _ in (result["search"] or {}).get("accuracies", [])):
        yield "search.accuracies should have a rate beside every accuracy"
    if result["status"] == "ok" and not result["curve"]:
        yield "curve should have a point"
    if (result["model"] or result["status"] == "ok") and not BuiltModel.__annotations__.keys() <= result["model"].keys():
        yield "model should have parameters, state and flops_per_token"


def _uneven(slices: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what slices lack, and what does not have a number for every value."""
    for name, totals in slices.items():
        at = totals.get("at")
        if not isinstance(at, list):
            yield f"{where}.{name!a} should have a list of values as at"
            return
        for metric, of in totals.items():
            if metric != "at" and (not isinstance(of, dict) or not len(of["sum"]) == len(of["weight"]) == len(at)):
                yield f"{where}.{name!a} should have a sum and a weight for every value"

"""Types of benchmarks' results."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from linbench.results.schema.cells import Device, Layer, Model, State, Task
from linbench.results.schema.fields import (
    BENCH_STATUSES,
    SWEEP_PARTS,
    Count,
    Name,
    NotNegative,
    Positive,
    Seconds,
    Size,
    Whole,
)


class BenchEnvironment(TypedDict):
    commit: str | None
    dirty: bool | None
    packages: dict[str, str]
    device: Device
    threads: Size


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
    kernels: NotRequired[dict[str, Whole]]
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


class SweepIdentity(BenchIdentity):
    version: Whole
    suite: Name
    cells: Name
    executor: Name
    devices: Size
    workers: Count
    stack: Size | None


class BenchState(TypedDict):
    floats: Count
    bytes: Count
    declared: State | None


class BenchFields(TypedDict):
    """Fields that results of all benchmarks have."""

    schema: NotRequired[Whole]
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


class SpeedResult(BenchFields):
    kind: Literal["speed"]
    kernel_changes: NotRequired[Whole]
    bench: SpeedIdentity
    sides: dict[str, Side]


class OperationResult(BenchFields):
    kind: Literal["operation"]
    bench: OperationIdentity
    sides: dict[str, KernelSide]
    bare: NotRequired[Timing | None]


class StepResult(BenchFields):
    kind: Literal["step"]
    bench: StepIdentity
    sides: dict[str, Side]
    parts: NotRequired[dict[str, NotNegative] | None]


class DrawResult(BenchFields):
    kind: Literal["draw"]
    bench: DrawIdentity
    sides: dict[str, Side]
    examples: NotRequired[Size]


class SweepSpent(TypedDict):
    seconds: Seconds
    cells: Count
    failed: Count
    tokens: Count
    parts: dict[SWEEP_PARTS, NotNegative]


class SweepResult(BenchFields):
    kind: Literal["sweep"]
    bench: SweepIdentity
    spent: NotRequired[SweepSpent | None]


BenchmarkIdentity = SpeedIdentity | OperationIdentity | StepIdentity | DrawIdentity | SweepIdentity
"""The fields that say what a benchmark measured."""

TimingResult = OperationResult | StepResult | DrawResult
"""A benchmark's result other than a layer's or a whole suite's."""

BenchmarkResult = SpeedResult | TimingResult | SweepResult
"""A result of any benchmark."""

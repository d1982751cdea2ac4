"""Types of the fields of results, and the names of kinds and statuses."""

from typing import Annotated, Final, Literal

from pydantic import Field

CELL: Final = "cell"
"""The kind of the result of a trained cell. Such results carry no `kind` of their own."""

SPEED: Final = "speed"
"""The kind of a layer's measured speed or memory."""

OPERATION: Final = "operation"
"""The kind of a kernel's measured speed."""

STEP: Final = "step"
"""The kind of a whole training step's measured speed."""

DRAW: Final = "draw"
"""The kind of the measured speed at which a task draws examples."""

SWEEP: Final = "sweep"
"""The kind of the measured speed of a whole suite, from its first command to its last result."""

PROBE: Final = "probe"
"""The kind of what a language model answered that was trained elsewhere."""

STATUSES = Literal["ok", "diverged", "oom", "timeout", "failed"]
"""The statuses of cells."""

BENCH_STATUSES = Literal["ok", "undeclared", "oom", "failed"]
"""The statuses of benchmarks."""

SWEEP_PARTS = Literal["building", "first steps", "training", "evaluation"]
"""The parts of a sweep in which workers are timed."""

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

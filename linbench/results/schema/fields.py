"""Types of the fields of a result, kinds of results, and how they end."""

from typing import Annotated, Literal

from pydantic import Field

CELL, SPEED, OPERATION, STEP, DRAW = "cell", "speed", "operation", "step", "draw"
"""Kinds of results: of a cell, as one that does not say is; of a layer that was timed, a kernel, a whole
training step, and the drawing of examples."""

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

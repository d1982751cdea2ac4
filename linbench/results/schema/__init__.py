"""Types of results: the fields of a result file.

A file that does not fit the type of its kind is no result, whatever its checksum says.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from linbench.common.errors import shorten
from linbench.results.schema.benchmarks import (
    BenchmarkResult,
    DrawResult,
    OperationResult,
    SpeedResult,
    StepResult,
    SweepResult,
)
from linbench.results.schema.cells import BuiltModel, CellResult
from linbench.results.schema.fields import CELL, DRAW, OPERATION, PROBE, SPEED, STEP, SWEEP
from linbench.results.schema.pretrained import PretrainedResult

Result = CellResult | BenchmarkResult | PretrainedResult
"""A result of any kind, as the JSON object that is stored."""


class ResultsByKind(TypedDict):
    """Results of a store in one list for each kind."""

    cell: list[CellResult]
    speed: list[SpeedResult]
    operation: list[OperationResult]
    step: list[StepResult]
    draw: list[DrawResult]
    sweep: list[SweepResult]
    probe: list[PretrainedResult]


RECORDS: Mapping[str, Any] = {
    CELL: CellResult,
    SPEED: SpeedResult,
    OPERATION: OperationResult,
    STEP: StepResult,
    DRAW: DrawResult,
    SWEEP: SweepResult,
    PROBE: PretrainedResult,
}


def misfit(result: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the first field that does not fit the type of its kind; None if all fit.

    It reads like `curve.0.step should be a valid integer`.
    """
    kind = result.get("kind", CELL)
    if not isinstance(kind, str) or kind not in RECORDS:
        return f"kind should be one of {', '.join(RECORDS)}"
    try:
        _adapter(kind).validator.validate_python(result, strict=True)
    except ValidationError as invalid:
        return _words(invalid.errors(include_url=False)[0])
    if kind == PROBE:
        return next(_unscored(result, ""), None)
    return next(_contradictions(result), None) if kind == CELL else None


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(RECORDS[kind])


def _words(error: ErrorDetails) -> str:
    """Return an error in words. Names of fields are cut and escaped, since they come from the file."""
    field = ".".join(shorten(ascii(part).strip("'"), 40) for part in error["loc"])
    if error["type"] == "missing":
        return f"{field} is missing"
    return f"{field} {error['msg'][0].lower()}{error['msg'][1:]}".replace("input should", "should")


def _contradictions(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is inconsistent within the result of a cell."""
    tests, asked = result.get("tests", []), result["cell"]["task"].get("test", [])
    if len(tests) != (len(asked) if len(asked) > 1 else 0):
        yield "tests should be those of cell.task.test"
    for place, taken in [("", result), *((f"tests.{i}.", test) for i, test in enumerate(tests))]:
        yield from _unscored(taken, place, ok=result["status"] == "ok")
    if any(rate is None for rate, _ in (result["search"] or {}).get("accuracies", [])):
        yield "search.accuracies should have a rate beside every accuracy"
    if result["status"] == "ok" and not result["curve"]:
        yield "curve should have a point"
    if (result["model"] or result["status"] == "ok") and not BuiltModel.__annotations__.keys() <= result[
        "model"
    ].keys():
        yield "model should have parameters, state and flops_per_token"


def _unscored(taken: Mapping[str, Any], place: str, *, ok: bool = True) -> Iterator[str]:
    """Yield what is missing in the scores of a test, and its accuracy if all went well."""
    yield from _uneven(taken["slices"], f"{place}slices")
    if ok and "accuracy" not in taken["metrics"]:
        yield f"{place}metrics.accuracy is missing"


def _uneven(slices: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what is missing in slices: their values, or a metric's number for a value."""
    for name, totals in slices.items():
        at = totals.get("at")
        if not isinstance(at, list):
            yield f"{where}.{name!a} should have a list of values as at"
            return
        for metric, of in totals.items():
            if metric != "at" and (
                not isinstance(of, dict) or not len(of["sum"]) == len(of["weight"]) == len(at)
            ):
                yield f"{where}.{name!a} should have a sum and a weight for every value"

"""Tables of the report."""

from collections.abc import Mapping, Sequence
from typing import Any

from linbench.report.table import Table, of_texts
from linbench.results.comparison import Comparison
from linbench.results.record import identity_of, seed_of
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult


def for_page(table: Table, colours: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the template shows of a table.

    Args:
        table: without its empty columns, where these may be hidden.
        colours: of its rows, if these have any.
    """
    shown = table.without_empty()
    return {
        "columns": [(column.name, column.left) for column in shown.columns],
        "rows": shown.texts,
        "colours": list(colours),
    }


def environments(results: Sequence[Result]) -> Table:
    """Return a table of what results were measured with, and how many results there are of each."""
    counts: dict[tuple[tuple[str, str], ...], int] = {}
    for result in results:
        key = tuple(_environment(result).items())
        counts[key] = counts.get(key, 0) + 1
    names = list(dict.fromkeys(name for key in counts for name, _ in key))
    rows = []
    for key, count in sorted(counts.items(), key=str):
        values = dict(key)
        rows.append([str(count), *(values.get(name, "–") for name in names)])
    return of_texts(["results", *names], rows)


def _environment(result: Result) -> dict[str, str]:
    measured = result["environment"]
    commit = f"{(measured['commit'] or 'none known')[:10]}{', with changes' if measured.get('dirty') else ''}"
    values: Mapping[str, Any] = {
        "device": device_of(result),
        "cuda": measured.get("device", {}).get("cuda"),
        "threads": measured.get("threads"),
        "python": measured.get("python"),
        "platform": measured.get("platform"),
        **measured["packages"],
    }
    return {
        "commit": commit,
        **{name: "–" if value is None else str(value) for name, value in values.items()},
    }


def device_of(result: Result) -> str:
    """Return the name of the device that a result was measured on."""
    name = result["environment"].get("device", {}).get("name")
    return name or identity_of(result)["device"]


def failures(results: Sequence[CellResult]) -> Table:
    """Return a table of the runs that did not end well."""
    rows = []
    for result in results:
        if result["status"] != "ok":
            cell = result["cell"]
            task = " ".join(part for part in (cell["task"]["name"], result["preset"]) if part)
            rows.append(
                [
                    task,
                    result["label"],
                    cell["model"]["form"],
                    str(seed_of(result)),
                    result["purpose"],
                    result["status"],
                    result["reason"] or "",
                ]
            )
    names = ["task", "model", "form", "seed", "purpose", "status", "reason"]
    return of_texts(names, rows, left=("task", "model", "reason"))


def marks(found: Sequence[Comparison]) -> Table:
    """Return a table of the models with marks, or with runs that did not end well."""
    rows = [
        [f"{one.title}, {one.form}", row.label, ", ".join(row.marks)]
        for one in found
        for row in one.rows
        if row.marks
    ]
    return of_texts(["comparison", "model", "marks"], rows, left=("comparison", "model", "marks"))


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table whose columns are all text."""
    return of_texts(columns, rows, left=columns)

"""Tables as files: Markdown, CSV, LaTeX and JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from linbench.common import escape
from linbench.common.files import file_name, inside, storage_sentence, unused, write_whole
from linbench.report.latex import PACKAGES, tabular
from linbench.report.tables import numbers
from linbench.report.tables.comparison import LEFT, MORE, caption, markdown, more_tables, table, titled
from linbench.report.tables.overview import OVERVIEW, overviews
from linbench.results.comparison import Comparison
from linbench.results.record import seed_of
from linbench.results.scores import accuracy


def csv(comparison: Comparison) -> str:
    """The first table, as numbers."""
    return numbers.csv(numbers.models(comparison))


def latex(comparison: Comparison) -> str:
    """A floating table without what no paper has room for, one by test and one of other metrics, where there
    are any, for a document with the packages that its first line names."""
    title = f"{comparison.title}, {comparison.form}"
    first = table(comparison).drop(columns=["of them", "seconds"])
    frames = {"": (first if first["marks"].any() else first.drop(columns="marks"), caption(comparison))}
    frames |= {
        f"-{name}": (frame, f"{title}: {MORE[name].lower()}.")
        for name, frame in more_tables(comparison).items()
    }
    tables = [
        tabular(frame, caption=about, label=comparison.slug + name, align=alignment(frame))
        for name, (frame, about) in frames.items()
    ]
    return "\n".join([PACKAGES, *tables])


def plain(comparison: Comparison) -> dict[str, Any]:
    """All of it as JSON values, with the accuracy of every seed."""
    return {
        "title": comparison.title,
        "form": comparison.form,
        "device": comparison.device,
        "caption": caption(comparison),
        "results": comparison.fingerprint,
        "chance": comparison.results[0]["chance"],
        "rows": numbers.models(comparison),
        "accuracies": {
            row.label: {str(seed_of(result)): accuracy(result) for result in row.results}
            for row in comparison.rows
        },
        "tests": numbers.tests(comparison),
        "metrics": numbers.metrics(comparison),
    }


def save_tables(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Markdown, CSV, LaTeX and JSON of every comparison, and of accuracy by task and model; another CSV file
    by test and of other metrics, where there are any."""
    written = list[Path]()
    with storage_sentence(folder, "cannot write tables to", "--save"):
        folder.mkdir(parents=True, exist_ok=True)
        names = list[str]()
        for comparison in comparisons:
            values = plain(comparison)
            names.append(unused(comparison.slug, names))
            texts = {
                ".md": markdown(comparison),
                ".csv": numbers.csv(values["rows"]),
                ".tex": latex(comparison),
                ".json": as_json(values),
            }
            texts |= {f"-{name}.csv": numbers.csv(values[name]) for name in MORE if values[name]}
            written += write_texts(folder, names[-1], texts)
        for name, overview in overviews(comparisons).items():
            names.append(unused(file_name(f"by task {name}"), names))
            written += save_table(
                f"By task and model: {name}", overview.frame, OVERVIEW, overview.numbers, folder, names[-1]
            )
    return written


def save_table(
    title: str, frame: pd.DataFrame, about: str, rows: numbers.Numbers, folder: Path, name: str
) -> list[Path]:
    """Write a table in words, with what stands above and below it, as Markdown and LaTeX, and its numbers as
    CSV and JSON; return the paths of the files. Raises OSError."""
    return write_texts(
        folder,
        name,
        {
            ".md": titled(title, frame, about),
            ".csv": numbers.csv(rows),
            ".tex": in_latex(title, frame, about, name),
            ".json": as_json({"title": title, "caption": about, "rows": rows}),
        },
    )


def in_latex(title: str, frame: pd.DataFrame, about: str, label: str) -> str:
    """A floating table, for a document with the packages that its first line names."""
    return f"{PACKAGES}\n{tabular(frame, caption=f'{title}. {about}', label=label, align=alignment(frame))}"


def alignment(frame: pd.DataFrame) -> str:
    """A letter for each column."""
    return "".join("l" if name in LEFT else "r" for name in frame.columns)


def as_json(values: dict[str, Any]) -> str:
    """As a file has them."""
    return escape.in_json(json.dumps(values, indent=1, ensure_ascii=False)) + "\n"


def write_texts(folder: Path, name: str, texts: Mapping[str, str]) -> list[Path]:
    """Write a file for each suffix, whole or not at all; return the paths of all. Raises OSError."""
    paths = [inside(folder, f"{name}{suffix}") for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text.encode())
    return paths

"""Tables as files: Markdown, CSV, LaTeX and JSON."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linbench.report.latex import PACKAGES, tabular
from linbench.report.overview import OVERVIEW, overviews
from linbench.report.tables import LEFT, MORE, body, by_metric, by_test, caption, markdown, more_tables, table
from linbench.results import Comparison
from linbench.scores import accuracy
from linbench.store import seed_of, storage_sentence


def csv(comparison: Comparison) -> str:
    """The first table."""
    return table(comparison).to_csv(index=False)


def latex(comparison: Comparison) -> str:
    """A floating table without what no paper has room for, one by test and one of other metrics, where there are any, for a document with the packages that
    its first line names."""
    title = f"{comparison.title}, {comparison.form}"
    first = table(comparison).drop(columns=["of them", "seconds"])
    frames = {"": (first if first["marks"].any() else first.drop(columns="marks"), caption(comparison))}
    frames |= {f"-{name}": (frame, f"{title}: {MORE[name].lower()}.") for name, frame in more_tables(comparison).items()}
    tables = [
        tabular(frame, caption=about, label=comparison.slug + name, align="".join("l" if column in LEFT else "r" for column in frame.columns))
        for name, (frame, about) in frames.items()
    ]
    return "\n".join([PACKAGES, *tables])


def plain(comparison: Comparison) -> dict[str, Any]:
    """All of it as JSON values: rows as they are shown, and the accuracy of every seed as a number."""
    return {
        "title": comparison.title,
        "form": comparison.form,
        "device": comparison.device,
        "caption": caption(comparison),
        "results": comparison.fingerprint,
        "chance": comparison.results[0]["chance"],
        "rows": table(comparison).to_dict("records"),
        "accuracies": {row.label: {str(seed_of(result)): accuracy(result) for result in row.results} for row in comparison.rows},
        "tests": by_test(comparison).to_dict("records"),
        "metrics": by_metric(comparison).to_dict("records"),
    }


TEXTS: dict[str, Callable[[Comparison], str]] = {
    ".md": markdown,
    ".csv": csv,
    ".tex": latex,
    ".json": lambda comparison: json.dumps(plain(comparison), indent=1, ensure_ascii=False) + "\n",
}
"""What `save_tables` writes, by suffix."""


def save_tables(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Markdown, CSV, LaTeX and JSON of every comparison, and another CSV file by test and of other metrics, where there are any; Markdown and CSV of
    accuracy by task and model."""
    written = []
    with storage_sentence(folder, "cannot write tables to", "--save"):
        folder.mkdir(parents=True, exist_ok=True)
        for comparison in comparisons:
            texts = {suffix: text(comparison) for suffix, text in TEXTS.items()}
            texts |= {f"-{name}.csv": frame.to_csv(index=False) for name, frame in more_tables(comparison).items()}
            written += write_texts(folder / comparison.slug, texts)
        for name, frame in overviews(comparisons).items():
            text = f"### By task and model: {name}\n\n{body(frame)}\n\n{OVERVIEW}\n"
            written += write_texts(folder / f"by-task-{slug(name)}", {".md": text, ".csv": frame.to_csv(index=False)})
    return written


def write_texts(stem: Path, texts: Mapping[str, str]) -> list[Path]:
    """A file for each suffix; all of them."""
    paths = [stem.with_name(f"{stem.name}{suffix}") for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def slug(name: str) -> str:
    """A name for files: `controlled-form-nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

"""Tables of speeds in words, and what is said of them: drawn on a terminal, or written to files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from linbench.common.files import storage_sentence, unused
from linbench.report.export import in_latex, save_table
from linbench.report.tables import numbers
from linbench.report.tables.comparison import Drawn, titled
from linbench.results.speed_labels import AS_CALLED, REPLAYED
from linbench.results.speeds import Rate

TITLES = {"train": "Training", "prefill": "Prompts", "decode": "Decoding", "memory": "Memory"}

NOTES = {
    "train": "Forward and backward of one layer, to the gradients of its input and of every parameter.",
    "prefill": "Forward from an empty state, which is kept; no gradients.",
    "decode": "One token for every sequence, after so many tokens, from a carried state; no gradients.",
    "memory": (
        "Peak: what forward and backward take at most beyond weights and input; on a CPU bytes of tensors"
        " that torch holds, without what its operators use while they work. State: what one sequence leaves"
        " behind at that length, by its tensors."
    ),
}

TIMING = {
    REPLAYED: "Replayed from a CUDA graph, caches overwritten before.",
    AS_CALLED: "Wall clock around the call until the device is done, a GPU's caches overwritten before.",
}

GROWTH = (
    "Growth is e where the time of a sequence grows as its length to the power e, fitted over all lengths; of"
    " decoding, where that of a token does."
)

ROOFLINE = (
    "Of the longest: the operations and bytes that a token takes at the least, and the roofline, the time"
    " that these take at the rates of a matrix product and of a copy in the same run, whichever is longer,"
    " over the time measured. First call: the longest, with what had to be compiled, on a GPU beside others"
    " that compiled."
)


class Words(NamedTuple):
    """A table in words, with what stands above and below it, a name for files, and its numbers, a row for
    each layer and length."""

    title: str
    frame: pd.DataFrame
    caption: str
    slug: str
    numbers: numbers.Numbers


def three_digits(value: float) -> str:
    """1,234 or 123 or 12.3 or 0.0123."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def thousands(rate: Rate) -> str:
    """Thousand tokens per second, with the spread."""
    return f"{three_digits(rate.median / 1e3)} ± {rate.spread:.0%}"


def rich_table(words: Words) -> Drawn:
    """For a terminal."""
    return Drawn(words.frame, words.title, words.caption)


def markdown(words: Words) -> str:
    """A heading, the table and what stands below it."""
    return titled(words.title, words.frame, words.caption)


def csv(words: Words) -> str:
    """Its numbers alone."""
    return numbers.csv(words.numbers)


def latex(words: Words) -> str:
    """A floating table, for a document with the packages that its first line names."""
    return in_latex(words.title, words.frame, words.caption, words.slug)


def plain(words: Words) -> dict[str, Any]:
    """Its numbers, and what stands above and below it, as JSON values."""
    return {"title": words.title, "caption": words.caption, "rows": words.numbers}


def save_words(found: Sequence[Words], folder: Path) -> list[Path]:
    """Markdown, CSV, LaTeX and JSON of each."""
    with storage_sentence(folder, "cannot write tables to", "--save"):
        folder.mkdir(parents=True, exist_ok=True)
        written, names = list[Path](), list[str]()
        for words in found:
            names.append(unused(words.slug, names))
            written += save_table(words.title, words.frame, words.caption, words.numbers, folder, names[-1])
        return written

"""Tables of speeds in words, and what is said of them: drawn on a terminal, or written to files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from linbench.report.exports import write_texts
from linbench.report.latex import PACKAGES, tabular
from linbench.report.tables import LEFT, Drawn, body
from linbench.speeds import AS_CALLED, REPLAYED, Rate
from linbench.store import storage_sentence

TITLES = {"train": "Training", "prefill": "Prompts", "decode": "Decoding", "memory": "Memory"}

NOTES = {
    "train": "Forward and backward of one layer, to the gradients of its input and of every parameter.",
    "prefill": "Forward from an empty state, which is kept; no gradients.",
    "decode": "One token for every sequence, after so many tokens, from a carried state; no gradients.",
    "memory": "Peak: what forward and backward take at most beyond weights and input; on a CPU bytes of tensors that torch holds, without what its "
    "operators use while they work. State: what one sequence leaves behind at that length, by its tensors.",
}

TIMING = {
    REPLAYED: "Replayed from a CUDA graph, caches overwritten before.",
    AS_CALLED: "Wall clock around the call until the device is done, a GPU's caches overwritten before.",
}

GROWTH = "Growth is e where the time of a sequence grows as its length to the power e, fitted over all lengths; of decoding, where that of a token does."

ROOFLINE = (
    "Of the longest: the operations and bytes that a token takes at the least, and the roofline, the time that these take at the rates of a matrix product "
    "and of a copy in the same run, whichever is longer, over the time measured. First call: the longest, with what had to be compiled, on a GPU beside others "
    "that compiled."
)


class Words(NamedTuple):
    """A table in words, with what stands above and below it, and a name for files."""

    title: str
    frame: pd.DataFrame
    caption: str
    slug: str


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
    return f"### {words.title}\n\n{body(words.frame)}\n\n{words.caption}\n"


def csv(words: Words) -> str:
    """The table alone."""
    return words.frame.to_csv(index=False)


def latex(words: Words) -> str:
    """A floating table, for a document with the packages that its first line names."""
    align = "".join("l" if name in LEFT else "r" for name in words.frame.columns)
    return f"{PACKAGES}\n{tabular(words.frame, caption=f'{words.title}. {words.caption}', label=words.slug, align=align)}"


def plain(words: Words) -> dict[str, Any]:
    """All of it as JSON values."""
    return {"title": words.title, "caption": words.caption, "rows": words.frame.to_dict("records")}


def save_words(found: Sequence[Words], folder: Path) -> list[Path]:
    """One Markdown and one CSV file for each."""
    written = []
    with storage_sentence(folder, "cannot write tables to", "--save"):
        folder.mkdir(parents=True, exist_ok=True)
        for words in found:
            written += write_texts(folder / words.slug, {".md": markdown(words), ".csv": csv(words)})
    return written

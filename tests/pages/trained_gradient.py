"""The second table and figure of docs/gradients.md, of trained models, from the stored rows beside it.

`python -m tests.pages.trained_gradient [FOLDER]` trains the models anew, in a minute or two each, and draws
their rows; FOLDER keeps what is found of each, so that none is trained twice. `python -m tests.pages.blocks`
then makes the table.
"""

import io
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from linbench.common import escape
from linbench.common.text import pluralize
from linbench.engine.display import display_on
from linbench.experiments.cell import Cell
from linbench.experiments.plan import plan
from linbench.experiments.run_spec import RunSpec
from linbench.report.figure import Drawing
from linbench.verify.gradient import TRIALS
from linbench.verify.gradient_panels import lines, short
from linbench.verify.trained_gradient import trained_gradient
from linbench.verify.trained_gradient_panels import WHEN, drawing
from linbench.verify.update_rules import Trials
from tests.pages.fact import Fact
from tests.pages.fact import short as short_number
from tests.pages.gradient import DIGITS, FOLDER, PAGE

ROWS, PICTURE, CAPTION = (FOLDER / f"gradient-after.{suffix}" for suffix in ("csv", "svg", "txt"))
TASK = "mqar"
MODELS = (
    "rnn", "gru", "lstm", "mingru", "gla", "hgrn2", "mamba2", "gated_deltanet", "deltanet", "fox",
    "attention",
)  # fmt: skip
LEARNED = 0.9
"""The accuracy above which a model has learned the task."""


def cells() -> list[Cell]:
    """Return the cells of the models that are trained."""
    return plan(RunSpec(TASK, MODELS, device="cpu"))


def load() -> list[dict[str, Any]]:
    """Return the stored rows."""
    rows = pd.read_csv(ROWS).to_dict("records")
    return [row | {when: None if pd.isna(row[when]) else row[when] for when in WHEN} for row in rows]


def drawn() -> Drawing:
    """Return the figure of the stored rows."""
    first = cells()[0]
    length, form = first.task.seq_len, first.model.form
    return drawing(load(), trials=pluralize(TRIALS, "draw"), task=TASK, length=length, form=form)


def table() -> str:
    """Return a table of log10 of the gradient before and after training, by distance, with accuracies."""
    rows = load()
    accuracy = {row["model"]: f"{row['accuracy']:.3f}" for row in rows}
    distances, _ = lines(rows, WHEN[0])
    made = [f"| variant | training | {' | '.join(map(str, distances))} | accuracy |"]
    made.append("|---" * (len(distances) + 3) + "|")
    for model, reached in accuracy.items():
        for when in WHEN:
            sizes = " | ".join(map(short, lines(rows, when)[1][model]))
            made.append(f"| `{model}` | {when} | {sizes} | {reached if when == WHEN[1] else ''} |")
    return "\n".join(made) + "\n"


def left(when: str) -> dict[str, float]:
    """Return log10 of what is left at the length of training of the gradient at a distance of 1."""
    distances, sizes = lines(load(), when)
    near, far = distances.index(1), distances.index(cells()[0].task.seq_len)
    return {model: line[far] - line[near] for model, line in sizes.items()}  # type: ignore[operator]


def kept() -> list[str]:
    """Return the number of variants that keep a hundredth or more before and after, and which are new."""
    before, after = ({model for model, change in left(when).items() if change >= -2} for when in WHEN)
    assert before < after
    return [str(len(before)), str(len(MODELS)), str(len(after)), named(after - before)]


def unchanged() -> list[str]:
    """Return the variants in which training changes what is left less than twofold."""
    before, after = (left(when) for when in WHEN)
    return [named(model for model in MODELS if abs(after[model] - before[model]) < math.log10(2))]


def learned() -> list[str]:
    """Return the variants whose models learned the task."""
    return [named(row["model"] for row in load() if row["accuracy"] > LEARNED)]


def best_of_the_others() -> list[str]:
    """Return the highest accuracy of a model that did not learn the task."""
    return [short_number(max(row["accuracy"] for row in load() if row["accuracy"] <= LEARNED))]


def named(models: Iterable[str]) -> str:
    """Return names as the page writes them."""
    return ", ".join(f"`{model}`" for model in sorted(set(models)))


FACTS = [
    Fact(
        PAGE,
        "{} of {} variants keep a hundredth or more of the gradient before training, and {} after it",
        lambda: kept()[:3],
    ),
    Fact(PAGE, "The new ones are {}.", lambda: kept()[3:]),
    Fact(PAGE, "What is left changes less than twofold in {}.", unchanged),
    Fact(PAGE, "Only the models of {} learned the task within this budget", learned),
    Fact(PAGE, "the others have an accuracy of {} at most", best_of_the_others),
]


def main(folder: Path | None) -> None:
    """Train the models anew, and draw their rows."""
    progress = display_on(Console(stderr=True))
    rows, failed = trained_gradient(cells(), progress, trials=Trials(TRIALS), folder=folder)
    assert not failed, failed
    text = io.StringIO()
    pd.DataFrame(rows).to_csv(text, index=False, float_format=f"%.{DIGITS}f")
    ROWS.write_text(text.getvalue(), encoding="utf-8")
    picture = drawn()
    PICTURE.write_bytes(picture.pictures(["svg"])["svg"])
    CAPTION.write_text(f"{escape.one_line(picture.caption)}\n{picture.about}.\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)

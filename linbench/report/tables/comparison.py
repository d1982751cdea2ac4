"""Comparisons as tables: in words, as Markdown and for the terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod
from rich.table import Table
from rich.text import Text

from linbench.common import escape
from linbench.experiments.labels import told_apart
from linbench.experiments.sizing import TOLERANCE
from linbench.report.tables import numbers
from linbench.report.terminal import markdown as markdown_rows
from linbench.report.terminal import width
from linbench.results.comparison import Comparison
from linbench.results.record import STATE, Result, rate_of, seed_of

NOTES = {
    "native": (
        "Native form: each model in its published parameterisation, so that more than the recurrence differs."
    ),
    "controlled": (
        "Controlled form: the same convolution, norms and channel mixer for all; only the recurrence differs."
    ),
}


def table(comparison: Comparison) -> pd.DataFrame:
    """One row per model: accuracy as mean and standard deviation over seeds, size, cost, and marks; and the
    learning rate if it was searched for."""
    searched = any(result["search"] for result in comparison.results)
    return pd.DataFrame([_words(row, searched=searched) for row in numbers.models(comparison)])


def _words(row: Mapping[str, Any], *, searched: bool) -> dict[str, str]:
    missing = "–" if row["parameters"] is None else "undeclared"  # never built, or it does not say

    def count(name: str) -> str:
        return missing if row[name] is None else f"{row[name]:,.0f}"

    parts = [f"{part} {row[f'state_{part}']:,}" for part in STATE if row[f"state_{part}"]]
    return {
        "model": row["model"],
        "accuracy": accuracy_words(row["accuracy"], row["accuracy_sd"]),
        "scaled": _three(row["scaled"]),
        **({"learning rate": f"{row['learning_rate']:g}"} if searched else {}),
        "seeds": str(row["seeds"]),
        "parameters": count("parameters"),
        "state floats": count("state_total"),
        "of them": missing if row["state_total"] is None else ", ".join(parts),
        "FLOPs/token": count("flops_per_token"),
        "steps to 0.9": "–" if row["steps_to_0.9"] is None else count("steps_to_0.9"),
        "seconds": f"{row['seconds']:.0f}",
        "marks": row["marks"],
    }


def by_test(comparison: Comparison) -> pd.DataFrame:
    """One row per model, a column for each of several tests: accuracy as in `table`. Empty where there is a
    single test."""
    return _pivoted(
        (row["model"], row["test"], accuracy_words(row["accuracy"], row["accuracy_sd"]))
        for row in numbers.tests(comparison)
    )


def by_metric(comparison: Comparison) -> pd.DataFrame:
    """One row per model, a column for each metric that the task has beside accuracy and nll: means over
    seeds. Empty where it has none. Of a metric that goes on by numbers, as weight_on_old_0 does, beyond 8
    those of powers of two."""
    return _pivoted(
        (row["model"], row["metric"], _three(row["mean"]))
        for row in numbers.metrics(comparison)
        if _near_or_doubled(row["metric"])
    )


def _pivoted(cells: Iterable[tuple[str, str, str]]) -> pd.DataFrame:
    """Of model, column and words one row for each model."""
    rows: dict[str, dict[str, str]] = {}
    for model, column, words in cells:
        rows.setdefault(model, {"model": model})[column] = words
    return pd.DataFrame(list(rows.values()))


def _near_or_doubled(name: str) -> bool:
    number = name.rpartition("_")[2]
    return not number.isdigit() or int(number) <= 8 or int(number).bit_count() == 1


def accuracy_words(mean: float | None, spread: float | None) -> str:
    """Mean ± standard deviation over seeds; a dash where there is none."""
    return "–" if mean is None else f"{mean:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")


def _three(value: float | None) -> str:
    """To three digits; a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"


def matching(comparison: Comparison) -> str:
    """In the controlled form, how well sizes are matched."""
    if comparison.form != "controlled":
        return ""
    words = {"parameters": "parameters", "state floats": "state floats where the state does not grow"}
    parts = [
        f"{words[name]} differ by {apart:.1%}{'' if apart <= TOLERANCE else ' and are NOT matched'}"
        for name, apart in comparison.mismatch.items()
    ]
    return f" Between models of one width, at most, {'; '.join(parts)}." if parts else ""


def caption(comparison: Comparison) -> str:
    """What was asked, how it was trained, on what, and what the columns mean."""
    tests, tested = (
        (f" of {len(comparison.tests)} tests, each counting as much", "longest tested")
        if comparison.tests
        else ("", "tested")
    )
    return (
        f"{_trained(comparison)} "
        f"Accuracy on the test split{tests}, mean ± standard deviation over seeds; "
        f"chance is {comparison.results[0]['chance']:.3f}, and scaled is (accuracy - chance) / (1 - chance). "
        f"State floats are those of one sequence at the {tested} length, all layers. "
        "Steps to 0.9: of training, until validation accuracy is that high. "
        "Seconds: median wall time of a run, no measure of a layer's speed."
    )


def setting(comparison: Comparison) -> str:
    """For figures, which have no columns: what was asked, how it was trained, on what, and chance."""
    return f"{_trained(comparison)} Chance is {comparison.results[0]['chance']:.3f}."


def _trained(comparison: Comparison) -> str:
    """What was asked, how it was trained, and on what."""
    first = comparison.results[0]
    protocol, task = first["cell"]["protocol"]["settings"], _task(first["cell"]["task"])
    model = ", ".join(f"{name} {value}" for name, value in comparison.shared_settings.items())
    rates, seeds = (
        ", ".join(map(str, sorted({pick(result) for result in comparison.results})))
        for pick in (rate_of, seed_of)
    )
    return (
        f"{comparison.title} ({task}); {_budget(protocol)} in batches of {protocol['batch_size']}, learning"
        f" rate {rates}{_searched(comparison)}, {protocol['precision']}; models alike in {model}; seeds"
        f" {seeds}; {comparison.device}; {commits(comparison.results)}."
        f" {NOTES.get(comparison.form, f'{comparison.form} form.')}{matching(comparison)}"
    )


def _task(task: Mapping[str, Any]) -> str:
    """Its settings; of what is trained and tested on otherwise those that all parts share, then what each has
    of its own."""
    train, test = (task.get(name, [task]) for name in ("train", "test"))
    parts = [part["settings"] for part in [*train, *test]]
    shared = ", ".join(
        f"{name} {value}"
        for name, value in parts[0].items()
        if all(part.get(name) == value for part in parts)
    )
    words = told_apart(parts)
    examples = [f" ({part['examples']:,} examples)" if "examples" in part else "" for part in train]
    trained = [own + size for own, size in zip(words, examples, strict=False)]
    return (
        f"{shared}; trained on {', '.join(trained)}; tested on {', '.join(words[len(train) :])}"
        if words[0]
        else shared
    )


def _budget(protocol: Mapping[str, Any]) -> str:
    """How much was trained on."""
    examples, epochs = protocol.get("examples"), protocol.get("epochs")
    of = f" of {examples:,} examples" if examples else ""
    return f"{epochs} epochs{of}" if epochs else f"{protocol['tokens']:,} tokens{of}"


def _searched(comparison: Comparison) -> str:
    """How learning rates were chosen, where they were."""
    found = [result["search"] for result in comparison.results if result["search"]]
    rates = sorted({rate for search in found for rate, _ in search["accuracies"]})
    seeds = sorted({seed for search in found for seed in search["seeds"]})
    return (
        f" (chosen by validation on seeds {', '.join(map(str, seeds))} among {rates[0]:g} to {rates[-1]:g})"
        if found
        else ""
    )


def commits(results: Iterable[Result]) -> str:
    """Of the code that measured them."""
    return ", ".join(sorted({_commit(result) for result in results}))


def _commit(result: Result) -> str:
    found = result["environment"]
    if not found["commit"]:
        return f"linbench {found['packages'].get('linbench', 'from source')}"
    return f"commit {found['commit'][:10]}{' with changes' if found['dirty'] else ''}"


def markdown(comparison: Comparison) -> str:
    """A heading, the table and its caption; accuracies by test and other metrics, where there are any."""
    more = "".join(f"\n{MORE[name]}:\n\n{body(frame)}\n" for name, frame in more_tables(comparison).items())
    return f"{titled(f'{comparison.title}, {comparison.form}', table(comparison), caption(comparison))}{more}"


def titled(title: str, frame: pd.DataFrame, about: str) -> str:
    """Return Markdown: a heading, the table and what stands below it."""
    return f"### {escape.markdown(title)}\n\n{body(frame)}\n\n{escape.paragraph(about)}\n"


MORE = {"tests": "By test", "metrics": "Other metrics"}
"""Tables that go with the first, by the names of their files."""


def more_tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """Accuracies by test and other metrics, where there are any."""
    found = {"tests": by_test(comparison), "metrics": by_metric(comparison)}
    return {name: frame for name, frame in found.items() if not frame.empty}


LEAST = ("seconds", "steps to", "FLOPs/token", "scaled", "parameters")
"""Beginnings of names of columns that a narrow terminal does without, the first first."""

LEFT = {"model", "layer", "operation", "task", "preset", "accuracy", "of them", "marks", "notes"}
"""Columns of words."""


def body(frame: pd.DataFrame) -> str:
    """In Markdown."""
    return markdown_rows(list(frame.columns), frame.to_numpy().tolist(), left=LEFT)


@dataclass(frozen=True)
class Drawn:
    """A table for a terminal, without those columns of least interest that it has no room for."""

    frame: pd.DataFrame
    title: str
    below: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        shown = [
            str(name)
            for name in self.frame.columns
            if name != "of them" and (name != "marks" or self.frame[name].any())
        ]
        spared = [name for start in LEAST for name in shown if name.startswith(start)]
        while not (fits := width(self._table(shown), console) <= options.max_width) and spared:
            shown.remove(spared.pop(0))
        yield self._table(shown, whole=fits)

    def _table(self, shown: Sequence[str], *, whole: bool = True) -> Table:
        """whole: without breaking words."""
        title, below = Text(escape.one_line(self.title)), self.below and Text(escape.one_line(self.below))
        found = Table(
            title=title, caption=below, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left"
        )
        for name in shown:
            side: JustifyMethod = "left" if name in LEFT else "right"
            found.add_column(
                Text(escape.one_line(name)),
                justify=side,
                no_wrap=whole and name not in {"marks", "notes"},
                overflow="fold",
            )
        for row in self.frame.to_dict("records"):
            found.add_row(*(Text(escape.one_line(row[name])) for name in shown))
        return found


def rich_tables(comparison: Comparison) -> list[Drawn]:
    """For a terminal."""
    title = f"{comparison.title}, {comparison.form}"
    more = [Drawn(frame, f"{title}, {MORE[name].lower()}") for name, frame in more_tables(comparison).items()]
    return [Drawn(table(comparison), title, caption(comparison)), *more]

"""Sentences and numbers in words that tables and figures share."""

from collections.abc import Iterable, Mapping
from typing import Any

from linbench.common.text import pluralize
from linbench.experiments.labels import distinguishing_labels
from linbench.experiments.sizing import TOLERANCE
from linbench.results.comparison import Comparison
from linbench.results.record import Result, rate_of, seed_of
from linbench.results.slices import slices
from linbench.results.speed_labels import AS_CALLED, REPLAYED
from linbench.results.speeds import Rate

TITLES = {"train": "Training", "prefill": "Prompts", "decode": "Decoding", "memory": "Memory"}
"""Titles of what is measured of layers, by question."""

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
"""Explanations of what is measured of layers, by question."""

TIMING = {
    REPLAYED: "Replayed from a CUDA graph, caches overwritten before.",
    AS_CALLED: "Wall clock around the call until the device is done, a GPU's caches overwritten before.",
}
"""Explanations of how calls are timed."""

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

FORMS = {
    "native": (
        "Native form: each model in its published parameterisation, so that more than the recurrence differs."
    ),
    "controlled": (
        "Controlled form: the same convolution, norms and channel mixer for all; only the recurrence differs."
    ),
}
"""Explanations of the forms of models."""

QUANTITIES = {
    "distance": "tokens between what is asked and its answer",
    "doublings": "doublings of the distance, in tokens",
    "overwrites": "how often the value had been overwritten",
    "slot": "place of the question, 0 nearest to the pairs",
    "writes_between": "writes of other keys in between",
    "parity length": "place in the sequence: bits up to the answer",
    "accuracy": "test accuracy",
    "stale": "answers that are an older value",
}
"""Labels of slices and metrics whose names do not say what they are. A slice whose name means something else
in a task has the task before its name."""


def three_digits(value: float) -> str:
    """Return a number with about three digits: 1,234 or 123 or 12.3 or 0.0123."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def thousands(rate: Rate) -> str:
    """Return a rate in thousand tokens per second, with its spread in per cent."""
    return f"{three_digits(rate.median / 1e3)} ± {rate.spread:.0%}"


def accuracy_words(mean: float | None, spread: float | None) -> str:
    """Return an accuracy as mean ± standard deviation over seeds, or a dash where there is none."""
    if mean is None:
        return "–"
    return f"{mean:.3f}" if spread is None else f"{mean:.3f} ± {spread:.3f}"


def probability(p: float) -> str:
    """Return a p-value with three decimals; a small one is never shown as zero."""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def equal(p: float) -> str:
    """Return a p-value as it follows the letter p: `= 0.012`, `< 0.001`."""
    words = probability(p)
    return f"< {words[1:]}" if words.startswith("<") else f"= {words}"


def commits(results: Iterable[Result]) -> str:
    """Return the commits of the code that measured some results, or the version where no commit is known."""
    return ", ".join(sorted({_commit(result) for result in results}))


def _commit(result: Result) -> str:
    found = result["environment"]
    if not found["commit"]:
        return f"linbench {found['packages'].get('linbench', 'from source')}"
    return f"commit {found['commit'][:10]}{' with changes' if found['dirty'] else ''}"


def setting(comparison: Comparison) -> str:
    """Return what a figure of a comparison says of its setting: task, training, device and chance level."""
    return f"{training(comparison)} Chance is {comparison.results[0]['chance']:.3f}."


def training(comparison: Comparison) -> str:
    """Return the task of a comparison, how its models were trained, on what, and how alike they are."""
    first = comparison.results[0]
    protocol, task = first["cell"]["protocol"]["settings"], _task(first["cell"]["task"])
    model = ", ".join(f"{name} {value}" for name, value in comparison.shared_settings.items())
    rates = ", ".join(map(str, sorted({rate_of(result) for result in comparison.results})))
    seeds = ", ".join(map(str, sorted({seed_of(result) for result in comparison.results})))
    form = FORMS.get(comparison.form, f"{comparison.form} form.")
    return (
        f"{comparison.title} ({task}); {_budget(protocol)} in batches of {protocol['batch_size']}, learning"
        f" rate {rates}{_search(comparison)}, {protocol['precision']}; models alike in {model}; seeds"
        f" {seeds}; {comparison.device}; {commits(comparison.results)}. {form}{_matching(comparison)}"
    )


def _task(task: Mapping[str, Any]) -> str:
    """Return the settings of a task. Where it is trained and tested on several mixtures: the settings that
    all share, then those of each."""
    train, test = (task.get(name, [task]) for name in ("train", "test"))
    parts = [part["settings"] for part in [*train, *test]]
    shared = ", ".join(
        f"{name} {value}"
        for name, value in parts[0].items()
        if all(part.get(name) == value for part in parts)
    )
    words = distinguishing_labels(parts)
    if not words[0]:
        return shared
    examples = [f" ({part['examples']:,} examples)" if "examples" in part else "" for part in train]
    trained = [own + size for own, size in zip(words, examples, strict=False)]
    return f"{shared}; trained on {', '.join(trained)}; tested on {', '.join(words[len(train) :])}"


def _budget(protocol: Mapping[str, Any]) -> str:
    """Return the amount of training in words."""
    examples, epochs = protocol.get("examples"), protocol.get("epochs")
    of = f" of {examples:,} examples" if examples else ""
    return f"{epochs} epochs{of}" if epochs else f"{protocol['tokens']:,} tokens{of}"


def _search(comparison: Comparison) -> str:
    """Return how learning rates were chosen, or nothing where they were given."""
    found = [result["search"] for result in comparison.results if result["search"]]
    if not found:
        return ""
    rates = sorted({rate for search in found for rate, _ in search["accuracies"]})
    seeds = sorted({seed for search in found for seed in search["seeds"]})
    return (
        f" (chosen by validation on seeds {', '.join(map(str, seeds))} among {rates[0]:g} to {rates[-1]:g})"
    )


def _matching(comparison: Comparison) -> str:
    """Return how well sizes are matched; nothing in the native form, where they are not meant to be."""
    if comparison.form != "controlled":
        return ""
    words = {"parameters": "parameters", "state floats": "state floats where the state does not grow"}
    parts = [
        f"{words[name]} differ by {apart:.1%}{'' if apart <= TOLERANCE else ' and are NOT matched'}"
        for name, apart in comparison.mismatch.items()
    ]
    return f" Between models of one width, at most, {'; '.join(parts)}." if parts else ""


def slice_words(task: str, name: str) -> str:
    """Return what a slice of a task is, as the label of an axis."""
    return QUANTITIES.get(f"{task} {name}") or QUANTITIES.get(name, name.replace("_", " "))


def metric_words(name: str) -> str:
    """Return what a metric is, as the label of an axis."""
    return QUANTITIES.get(name, name.replace("_", " "))


def averaged_answers(comparison: Comparison) -> str:
    """Return over which answers an accuracy is the mean, by the slices that tell them apart; nothing where
    there are no such slices."""
    found = next((one for result in comparison.results if (one := slices(result))), {})
    parts = []
    for name, one in found.items():
        if "accuracy" not in one:
            continue
        weights = zip(one["at"], one["accuracy"]["weight"], strict=True)
        at = [place for place, weight in weights if weight > 0]
        if len(at) > 1:
            parts.append(f"{slice_words(comparison.task, name)}, from {at[0]:,} to {at[-1]:,}")
    if not parts:
        return ""
    return (
        f"An accuracy is the mean over all answers of a test alike ({'; '.join(parts)}): right at some and at"
        " chance at others stands in between."
    )


def diverged_runs(comparison: Comparison) -> str:
    """Return how many runs diverged and what they count as; nothing where none did."""
    count = sum(result["status"] == "diverged" for result in comparison.results)
    if not count:
        return ""
    return f"{pluralize(count, 'run')} diverged, which counts as chance in accuracy and nowhere else."
